"""The replica-aware loader: public names only."""

from headrace.doors.replicas.accessor import AsynchronousDataAccessor as AsynchronousDataAccessor
from headrace.doors.replicas.feed import SharingStrategy as SharingStrategy
from headrace.doors.replicas.layout import Layout as Layout
from headrace.doors.replicas.layout import split as split
from headrace.doors.replicas.loader import DataLoader as DataLoader
from headrace.doors.replicas.loader import DataLoaderMode as DataLoaderMode
from headrace.doors.replicas.names import popdist as popdist
from headrace.doors.replicas.names import poptorch as poptorch
from headrace.doors.replicas.options import CommGroupType as CommGroupType
from headrace.doors.replicas.options import LaunchedOptions as LaunchedOptions
from headrace.doors.replicas.options import Options as Options
from headrace.doors.replicas.partition import LeftOut as LeftOut
from headrace.doors.replicas.tree import ICustomArgParser as ICustomArgParser
from headrace.doors.replicas.tree import registerCustomArgParser as registerCustomArgParser

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
