"""The modules of others whose names are headrace's: for each, whose public names it takes, and what has no counterpart.

A name without a counterpart can be imported, so that a file of tests is not lost for one of them; using it fails.
"""

from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Names:
    sources: tuple[str, ...] = ()
    """Modules of headrace; all that they list in `__all__`."""
    renamed: tuple[tuple[str, str], ...] = ()
    """(name there, `module:name` of headrace)"""
    private: tuple[str, ...] = ()
    kept: str = ""
    """A file of the original that stays, because a loader of ours takes what it defines as a user's own."""


class Private:
    """Stands for a private name of an original."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{self.__dict__['name']} is a private name of the original")

    __call__ = __iter__ = __getitem__ = __setattr__ = __instancecheck__ = __enter__ = __exit__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


_DATALOADER2 = tuple(
    (name, f"headrace:{name}")
    for name in (
        "CheckpointableReadingServiceInterface", "DataLoader2", "DataLoader2Iterator", "DistributedReadingService",
        "InProcessReadingService", "MultiProcessingReadingService", "PauseIteration",
        "PrototypeMultiProcessingReadingService", "ReadingServiceInterface", "SequentialReadingService",
    )
)  # fmt: skip

_SEEDS = (("SeedGenerator", "headrace:SeedGenerator"),)

_TORCHDATA = {
    "torchdata": Names(),
    "torchdata.datapipes": Names(("headrace.datapipes",)),
    "torchdata.datapipes.iter": Names(("headrace.datapipes.iter",)),
    "torchdata.datapipes.iter.load": Names(),
    "torchdata.datapipes.iter.load.online": Names(private=("_get_proxies",)),
    "torchdata.datapipes.iter.util": Names(),
    "torchdata.datapipes.iter.util.distributed": Names(private=("PrefetchTimeoutError",)),
    "torchdata.datapipes.map": Names(("headrace.datapipes.map",)),
    "torchdata.datapipes.utils": Names(("headrace.datapipes.utils",)),
    "torchdata.dataloader2": Names(renamed=_DATALOADER2),
    "torchdata.dataloader2.dataloader2": Names(
        renamed=_DATALOADER2, private=("READING_SERVICE_STATE_KEY_NAME", "SERIALIZED_DATAPIPE_KEY_NAME")
    ),
    "torchdata.dataloader2.reading_service": Names(renamed=_DATALOADER2),
    "torchdata.dataloader2.adapter": Names(("headrace.datapipes.adapter",)),
    "torchdata.dataloader2.error": Names(renamed=(("PauseIteration", "headrace:PauseIteration"),)),
    "torchdata.dataloader2.graph": Names(("headrace.datapipes.graph",), private=("DataPipe", "DataPipeGraph")),
    "torchdata.dataloader2.graph.settings": Names(("headrace.datapipes.graph",)),
    "torchdata.dataloader2.graph.utils": Names(
        ("headrace.datapipes.graph",), private=("_find_replicable_branches",)
    ),
    "torchdata.dataloader2.linter": Names(
        renamed=(("_check_shuffle_before_sharding", "headrace.datapipes.graph:shuffled_before_sharding"),)
    ),
    "torchdata.dataloader2.random": Names(renamed=_SEEDS),
    "torchdata.dataloader2.random.seed_generator": Names(renamed=_SEEDS),
    "torchdata.dataloader2.random._philox": Names(private=("PhiloxEngine",)),
    "torchdata.dataloader2.utils": Names(renamed=(("WorkerInfo", "headrace:WorkerInfo"),)),
    "torchdata.dataloader2.utils.dispatch": Names(
        private=("_DummyIterDataPipe", "find_lca_round_robin_sharding_dp", "find_non_dispatching_branches")
    ),
    "torchdata.dataloader2.utils.worker": Names(renamed=(("WorkerInfo", "headrace:WorkerInfo"),)),
}  # fmt: skip

_STATEFUL = {
    "torchdata": Names(),
    "torchdata.stateful_dataloader": Names(
        renamed=(
            ("StatefulDataLoader", "headrace.doors.torch.install:StatefulDataLoader"),
            ("Stateful", "compat_protocols:Stateful"),
        )
    ),
    "torchdata.stateful_dataloader.stateful": Names(renamed=(("Stateful", "compat_protocols:Stateful"),)),
    "torchdata.stateful_dataloader.sampler": Names(kept="torchdata/stateful_dataloader/sampler.py"),
    "torchdata.stateful_dataloader.incremental_state": Names(
        private=(
            "_DATASET_ITER_STATE", "_DATASET_STATE", "_FETCHER_ENDED", "_FETCHER_STATE", "_flatten", "_unflatten",
            "_IncrementalState", "_IncrementalWorkerState", "_Tombstone", "_WORKER_ID",
        )
    ),
}  # fmt: skip

_SWIFT = {"swift_loader": Names(renamed=(("SwiftLoader", "headrace:SwiftLoader"),))}

MODULES: dict[str, dict[str, Names]] = {
    "torchdata": _TORCHDATA,
    "stateful": _STATEFUL,
    "swift": _SWIFT,
    "torch": {},
    "datapipes": {},
}
"""By suite."""
