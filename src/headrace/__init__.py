"""Headrace carries data to a training loop: fast, exactly once, in a reproducible order.

Every public name is listed here. The module behind a name is imported when the name is first used, so that
`import headrace` is quick and needs neither numpy nor torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "Autosave": "headrace.engine.autosave",
    "Budget": "headrace.engine.policy",
    "CheckpointableReadingServiceInterface": "headrace.doors.dataloader2.services",
    "DataChunk": "headrace.doors.datapipes.names",
    "DataLoader": "headrace.doors.torch.loader",
    "DataLoader2": "headrace.doors.dataloader2.loader",
    "DataLoader2Iterator": "headrace.doors.dataloader2.loader",
    "DistributedReadingService": "headrace.doors.dataloader2.services",
    "InProcessReadingService": "headrace.doors.dataloader2.services",
    "IterDataPipe": "headrace.doors.datapipes.names",
    "IterableWrapper": "headrace.doors.datapipes.names",
    "Loader": "headrace.loader",
    "MapDataPipe": "headrace.doors.datapipes.names",
    "MultiProcessingReadingService": "headrace.doors.dataloader2.services",
    "PauseIteration": "headrace.doors.dataloader2.loader",
    "Pipe": "headrace.pipe.graph",
    "PrototypeMultiProcessingReadingService": "headrace.doors.dataloader2.services",
    "ReadingServiceInterface": "headrace.doors.dataloader2.services",
    "SHARDING_PRIORITIES": "headrace.doors.datapipes.names",
    "SeedGenerator": "headrace.doors.dataloader2.seeds",
    "SequenceWrapper": "headrace.doors.datapipes.names",
    "SequentialReadingService": "headrace.doors.dataloader2.services",
    "Stats": "headrace.loader",
    "SwiftLoader": "headrace.doors.swift.loader",
    "WorkerInfo": "headrace.doors.dataloader2.workers",
    "World": "headrace.plan.world",
    "dump": "headrace.loader",
    "functional_datapipe": "headrace.doors.datapipes.names",
    "install": "headrace.doors.torch.install",
    "installed": "headrace.doors.torch.install",
    "measure": "headrace.measuring",
    "progress": "headrace.observe.report",
    "rng": "headrace.op",
    "share": "headrace.memory.share",
    "uninstall": "headrace.doors.torch.install",
    "warm": "headrace.engine.workers.process.warming",
}

__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:
    from headrace.doors.dataloader2.loader import DataLoader2 as DataLoader2
    from headrace.doors.dataloader2.loader import DataLoader2Iterator as DataLoader2Iterator
    from headrace.doors.dataloader2.loader import PauseIteration as PauseIteration
    from headrace.doors.dataloader2.seeds import SeedGenerator as SeedGenerator
    from headrace.doors.dataloader2.services import (
        CheckpointableReadingServiceInterface as CheckpointableReadingServiceInterface,
    )
    from headrace.doors.dataloader2.services import DistributedReadingService as DistributedReadingService
    from headrace.doors.dataloader2.services import InProcessReadingService as InProcessReadingService
    from headrace.doors.dataloader2.services import MultiProcessingReadingService as MultiProcessingReadingService
    from headrace.doors.dataloader2.services import (
        PrototypeMultiProcessingReadingService as PrototypeMultiProcessingReadingService,
    )
    from headrace.doors.dataloader2.services import ReadingServiceInterface as ReadingServiceInterface
    from headrace.doors.dataloader2.services import SequentialReadingService as SequentialReadingService
    from headrace.doors.dataloader2.workers import WorkerInfo as WorkerInfo
    from headrace.doors.datapipes.names import SHARDING_PRIORITIES as SHARDING_PRIORITIES
    from headrace.doors.datapipes.names import DataChunk as DataChunk
    from headrace.doors.datapipes.names import IterableWrapper as IterableWrapper
    from headrace.doors.datapipes.names import IterDataPipe as IterDataPipe
    from headrace.doors.datapipes.names import MapDataPipe as MapDataPipe
    from headrace.doors.datapipes.names import SequenceWrapper as SequenceWrapper
    from headrace.doors.datapipes.names import functional_datapipe as functional_datapipe
    from headrace.doors.swift.loader import SwiftLoader as SwiftLoader
    from headrace.doors.torch.install import install as install
    from headrace.doors.torch.install import installed as installed
    from headrace.doors.torch.install import uninstall as uninstall
    from headrace.doors.torch.loader import DataLoader as DataLoader
    from headrace.engine.autosave import Autosave as Autosave
    from headrace.engine.policy import Budget as Budget
    from headrace.engine.workers.process.warming import warm as warm
    from headrace.loader import Loader as Loader
    from headrace.loader import Stats as Stats
    from headrace.loader import dump as dump
    from headrace.measuring import measure as measure
    from headrace.memory.share import share as share
    from headrace.observe.report import progress as progress
    from headrace.op import rng as rng
    from headrace.pipe.graph import Pipe as Pipe
    from headrace.plan.world import World as World


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
