"""Options of the replica-aware loader: how many micro-batches one step holds, and which process this is.

Setters are chained calls with the names that users of PopTorch know; every value is read back as an attribute in lower
case. A loader freezes the options that it is given: a later change is an error, `clone()` gives a copy that can change.

    Options            the processes come from the launcher, one replica each
    LaunchedOptions    the replicas come from the launcher too; setting what it owns is an error
"""

import copy
import enum
import sys
from typing import Any, ClassVar, Self

from headrace.errors import BadOption
from headrace.plan.world import World
from headrace.ranks import env
from headrace.ranks.detect import detect

DEFAULTS = ("HEADRACE_DEFAULT_OPTIONS", "POPTORCH_DEFAULT_OPTIONS")
"""Variables that PopTorch, and headrace 0.2, read options from; to ignore one would change the steps of a program."""


class CommGroupType(enum.StrEnum):
    """Which replicas of a process form a group: neighbours, or those that lie a number of groups apart."""

    All = "All"
    Consecutive = "Consecutive"
    Orthogonal = "Orthogonal"
    NoGrouping = "NoGrouping"


class Options:
    """How a step is made up. `world` says which process this is; None asks the launcher.

    Every value is an attribute that only its setter changes.
    """

    _called: ClassVar[str] = "headrace.replicas.Options"
    _owned: ClassVar[frozenset[str]] = frozenset()
    """Setters whose values belong to the launcher."""

    device_iterations: int = 1
    gradient_accumulation: int = 1
    replication_factor: int = 1
    input_group_size: int = 1
    input_group_type: CommGroupType = CommGroupType.Consecutive
    random_seed: int | None = None
    world: World

    def __init__(self, *, world: World | None = None) -> None:
        self.__dict__["world"] = detect() if world is None else world
        self._frozen = False
        self.Training = Training(self)
        self.Distributed = Distributed(self)
        for name in DEFAULTS:
            if env.current().get(name):
                raise BadOption(f"{name} is set, but options are not read from it: unset it, and call the setters")

    # --- how a step is made up ----------------------------------------------------------------------------------------

    def deviceIterations(self, device_iterations: int) -> Self:
        """Weight updates (or, without gradients, forward passes) whose data one step holds."""
        count = _whole("deviceIterations", "device_iterations", device_iterations)
        return self._set("deviceIterations", device_iterations=count)

    def replicationFactor(self, replication_factor: int) -> Self:
        """Copies of the model that this process drives."""
        count = _whole("replicationFactor", "replication_factor", replication_factor)
        return self._set("replicationFactor", replication_factor=count)

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType | str) -> Self:
        """Replicas of one group receive the same samples."""
        size = _whole("inputReplicaGrouping", "input_group_size", input_group_size)
        kind = _group_type(input_group_type)
        if kind is CommGroupType.NoGrouping:
            size = 1
        check_groups(self.replication_factor, size, kind)
        return self._set("inputReplicaGrouping", input_group_size=size, input_group_type=kind)

    def randomSeed(self, random_seed: int) -> Self:
        """The seed of the shuffle and of all random values; torch's own generator is seeded too, if torch is loaded."""
        seed = _whole("randomSeed", "random_seed", random_seed, least=0, most=2**64 - 1)
        self._set("randomSeed", random_seed=seed)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)
        return self

    # --- one object, changed in one place -----------------------------------------------------------------------------

    def clone(self) -> Self:
        """The same values in an object that can be changed."""
        twin = copy.copy(self)
        twin._frozen = False
        twin.Training, twin.Distributed = Training(twin), Distributed(twin)
        return twin

    def freeze(self) -> None:
        """From now on these options do not change."""
        self._frozen = True

    def checkIsFrozen(self) -> None:
        """Raise if a loader uses these options."""
        if self._frozen:
            raise AttributeError("Can't modify frozen Options: a loader uses them; change a clone() of them instead")

    def toDict(self) -> dict[str, Any]:
        """Every value by its name, as plain data; a seed that was not set is left out."""
        plain = {name: getattr(self, name) for name in _VALUES}
        world = plain.pop("world")
        if plain["random_seed"] is None:
            del plain["random_seed"]
        plain["input_group_type"] = str(plain["input_group_type"])
        return plain | {"num_distributed_processes": world.share_ranks, "distributed_process_id": world.share_rank}

    def __setattr__(self, name: str, value: object) -> None:
        if name in _VALUES:
            raise AttributeError(f"{name} is changed by its setter: options.{name} cannot be assigned")
        super().__setattr__(name, value)

    def _set(self, setter: str, **values: Any) -> Self:
        if setter in self._owned:
            raise RuntimeError(f"Cannot call `{setter}` with {self._called}")
        self.checkIsFrozen()
        self.__dict__.update(values)
        return self

    def __repr__(self) -> str:
        return f"{self._called}({', '.join(f'{name}={value}' for name, value in self.toDict().items())})"


_VALUES = [name for name in Options.__annotations__ if not name.startswith("_")]


class LaunchedOptions(Options):
    """Options whose replicas come from the launcher; without one there is a single replica."""

    _called = "headrace.replicas.LaunchedOptions"
    _owned = frozenset(
        ("replicationFactor", "Distributed.disable", "Distributed.setEnvVarNames", "Distributed.configureProcessId")
    )

    def __init__(self, *, world: World | None = None) -> None:
        super().__init__(world=world)
        launched = env.replicas()
        if launched is None:
            return
        if launched.total != launched.local * self.world.ranks:
            raise BadOption(
                f"the launcher gives {launched.local} of {launched.total} replicas to this process, but there are "
                f"{self.world.ranks} processes: all must drive equally many; start them with one launcher"
            )
        self.__dict__["replication_factor"] = launched.local


class Training:
    """What holds for training only."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Micro-batches of each replica that one weight update takes."""
        count = _whole("gradientAccumulation", "gradient_accumulation", gradient_accumulation)
        self._options._set("Training.gradientAccumulation", gradient_accumulation=count)
        return self

    @property
    def gradient_accumulation(self) -> int:
        return self._options.gradient_accumulation


class Distributed:
    """Which process this is."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def configureProcessId(self, process_id: int, num_processes: int) -> Self:
        self._options._set("Distributed.configureProcessId", world=World(process_id, num_processes))
        return self

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> Self:
        """Read both numbers from these variables; without them there is a single process."""
        environ = env.current()
        ranks, rank = env.integer(environ, var_num_processes), env.integer(environ, var_process_id)
        world = World(0 if rank is None else rank, 1 if ranks is None else ranks)
        self._options._set("Distributed.setEnvVarNames", world=world)
        return self

    def disable(self) -> Self:
        """A single process, whatever the launcher says."""
        self._options._set("Distributed.disable", world=World())
        return self

    @property
    def processId(self) -> int:
        return self._options.world.share_rank

    @property
    def numProcesses(self) -> int:
        return self._options.world.share_ranks


def check_groups(replicas: int, size: int, kind: CommGroupType) -> None:
    if kind is CommGroupType.All:
        raise BadOption(
            "input_group_type cannot be All: CommGroupType.All would give all replicas the same samples; "
            f"for that write inputReplicaGrouping({replicas}, CommGroupType.Consecutive)"
        )
    if size > replicas or replicas % size:
        wrong = "cannot be larger than" if size > replicas else "must be a factor of"
        raise BadOption(
            f"input_group_size {wrong} replication_factor: groups of {size} do not fill {replicas} replicas; "
            "inputReplicaGrouping() takes a divisor of replicationFactor (set that first)"
        )


def _group_type(value: Any) -> CommGroupType:
    try:
        return CommGroupType(value)
    except ValueError:
        raise _wrong("input_group_type", value, f"one of {', '.join(CommGroupType)}") from None


def _whole(setter: str, option: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Errors of the type name the attribute that is set, as PopTorch's do."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(option, value, int)
    if value < least or (most is not None and value > most):
        raise BadOption(f"{setter}({value}): give a number of at least {least}{f' and at most {most}' if most else ''}")
    return value


def _wrong(option: str, value: object, expected: type | str) -> BadOption:
    return BadOption(f"Unexpected type {type(value)} for option {option}. Expected {expected}, not {value!r}")
