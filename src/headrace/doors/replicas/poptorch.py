"""The replica-aware loader under the names of PopTorch and PopDist.

`poptorch` and `popdist` are namespaces: a program written for those packages runs with

    from headrace.replicas import popdist, poptorch

in place of its imports. What concerns an IPU or compiles a model is not here.
"""

from headrace.doors.replicas import accessor, feed, layout, loader, options, tree
from headrace.errors import HeadraceError
from headrace.ranks import env
from headrace.ranks.detect import detect


class poptorch:
    """What data loading needs of PopTorch."""

    AsynchronousDataAccessor = accessor.AsynchronousDataAccessor
    CommGroupType = options.CommGroupType
    DataLoader = loader.DataLoader
    DataLoaderMode = loader.DataLoaderMode
    Error = HeadraceError
    ICustomArgParser = tree.ICustomArgParser
    Options = options.Options
    SharingStrategy = feed.SharingStrategy
    registerCustomArgParser = staticmethod(tree.registerCustomArgParser)
    split = staticmethod(layout.split)


class _PopdistOptions(options.LaunchedOptions):
    _called = "popdist.poptorch.Options"


class popdist:
    """What a program asks its launcher."""

    class poptorch:
        Options = _PopdistOptions

    @staticmethod
    def isPopdistEnvSet() -> bool:
        """Whether a launcher that knows about replicas started this process."""
        return env.replicas() is not None

    @staticmethod
    def getInstanceIndex() -> int:
        return detect().rank

    @staticmethod
    def getNumInstances() -> int:
        return detect().ranks

    @staticmethod
    def getLocalInstanceIndex() -> int:
        return detect().local_rank

    @staticmethod
    def getNumTotalReplicas() -> int:
        return (env.replicas() or _ONE).total

    @staticmethod
    def getNumLocalReplicas() -> int:
        return (env.replicas() or _ONE).local

    @staticmethod
    def getReplicaIndexOffset() -> int:
        """The number, in the whole job, of the first replica of this process."""
        return (env.replicas() or _ONE).offset


_ONE = env.Replicas(1, 1, 0)
