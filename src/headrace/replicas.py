"""The replica-aware loader: public names only."""

from headrace.doors.replicas.accessor import AsynchronousDataAccessor
from headrace.doors.replicas.feed import SharingStrategy
from headrace.doors.replicas.layout import Layout, split
from headrace.doors.replicas.loader import DataLoader, DataLoaderMode
from headrace.doors.replicas.options import CommGroupType, LaunchedOptions, Options
from headrace.doors.replicas.partition import LeftOut
from headrace.doors.replicas.poptorch import popdist, poptorch
from headrace.doors.replicas.tree import ICustomArgParser, registerCustomArgParser

__all__ = [
    "AsynchronousDataAccessor",
    "CommGroupType",
    "DataLoader",
    "DataLoaderMode",
    "ICustomArgParser",
    "LaunchedOptions",
    "Layout",
    "LeftOut",
    "Options",
    "SharingStrategy",
    "popdist",
    "poptorch",
    "registerCustomArgParser",
    "split",
]
