"""Headrace carries data to a training loop: fast, exactly once, in a reproducible order.

Every public name is listed here. The module behind a name is imported when the name is first used, so that
`import headrace` is quick and needs neither numpy nor torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Budget": "headrace.engine.policy",
    "CheckpointableReadingServiceInterface": "headrace.doors.dataloader2_services",
    "DataChunk": "headrace.doors.datapipes",
    "DataLoader": "headrace.doors.torch",
    "DataLoader2": "headrace.doors.dataloader2",
    "DataLoader2Iterator": "headrace.doors.dataloader2",
    "DistributedReadingService": "headrace.doors.dataloader2_services",
    "InProcessReadingService": "headrace.doors.dataloader2_services",
    "IterDataPipe": "headrace.doors.datapipes",
    "IterableWrapper": "headrace.doors.datapipes",
    "Loader": "headrace.loader",
    "MapDataPipe": "headrace.doors.datapipes",
    "MultiProcessingReadingService": "headrace.doors.dataloader2_services",
    "PauseIteration": "headrace.doors.dataloader2",
    "Pipe": "headrace.pipe",
    "PrototypeMultiProcessingReadingService": "headrace.doors.dataloader2_services",
    "ReadingServiceInterface": "headrace.doors.dataloader2_services",
    "SHARDING_PRIORITIES": "headrace.doors.datapipes",
    "SeedGenerator": "headrace.doors.dataloader2_seeds",
    "SequenceWrapper": "headrace.doors.datapipes",
    "SequentialReadingService": "headrace.doors.dataloader2_services",
    "SharedPool": "headrace.engine.shared_pool",
    "Stats": "headrace.loader",
    "SwiftLoader": "headrace.doors.swift",
    "WorkerInfo": "headrace.doors.dataloader2_workers",
    "World": "headrace.plan.world",
    "dump": "headrace.loader",
    "functional_datapipe": "headrace.doors.datapipes",
    "install": "headrace.doors.torch_install",
    "installed": "headrace.doors.torch_install",
    "rng": "headrace.op",
    "share": "headrace.share",
    "uninstall": "headrace.doors.torch_install",
}

__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:
    from headrace.doors.dataloader2 import DataLoader2 as DataLoader2
    from headrace.doors.dataloader2 import DataLoader2Iterator as DataLoader2Iterator
    from headrace.doors.dataloader2 import PauseIteration as PauseIteration
    from headrace.doors.dataloader2_seeds import SeedGenerator as SeedGenerator
    from headrace.doors.dataloader2_services import (
        CheckpointableReadingServiceInterface as CheckpointableReadingServiceInterface,
    )
    from headrace.doors.dataloader2_services import DistributedReadingService as DistributedReadingService
    from headrace.doors.dataloader2_services import InProcessReadingService as InProcessReadingService
    from headrace.doors.dataloader2_services import MultiProcessingReadingService as MultiProcessingReadingService
    from headrace.doors.dataloader2_services import (
        PrototypeMultiProcessingReadingService as PrototypeMultiProcessingReadingService,
    )
    from headrace.doors.dataloader2_services import ReadingServiceInterface as ReadingServiceInterface
    from headrace.doors.dataloader2_services import SequentialReadingService as SequentialReadingService
    from headrace.doors.dataloader2_workers import WorkerInfo as WorkerInfo
    from headrace.doors.datapipes import SHARDING_PRIORITIES as SHARDING_PRIORITIES
    from headrace.doors.datapipes import DataChunk as DataChunk
    from headrace.doors.datapipes import IterableWrapper as IterableWrapper
    from headrace.doors.datapipes import IterDataPipe as IterDataPipe
    from headrace.doors.datapipes import MapDataPipe as MapDataPipe
    from headrace.doors.datapipes import SequenceWrapper as SequenceWrapper
    from headrace.doors.datapipes import functional_datapipe as functional_datapipe
    from headrace.doors.swift import SwiftLoader as SwiftLoader
    from headrace.doors.torch import DataLoader as DataLoader
    from headrace.doors.torch_install import install as install
    from headrace.doors.torch_install import installed as installed
    from headrace.doors.torch_install import uninstall as uninstall
    from headrace.engine.policy import Budget as Budget
    from headrace.engine.shared_pool import SharedPool as SharedPool
    from headrace.loader import Loader as Loader
    from headrace.loader import Stats as Stats
    from headrace.loader import dump as dump
    from headrace.op import rng as rng
    from headrace.pipe import Pipe as Pipe
    from headrace.plan.world import World as World
    from headrace.share import share as share


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
