"""The replica-aware loader: public names only."""

from headrace.doors.replicas import popdist as popdist
from headrace.doors.replicas import poptorch as poptorch
from headrace.doors.replicas_accessor import AsynchronousDataAccessor as AsynchronousDataAccessor
from headrace.doors.replicas_feed import SharingStrategy as SharingStrategy
from headrace.doors.replicas_layout import Layout as Layout
from headrace.doors.replicas_layout import split as split
from headrace.doors.replicas_loader import DataLoader as DataLoader
from headrace.doors.replicas_loader import DataLoaderMode as DataLoaderMode
from headrace.doors.replicas_options import CommGroupType as CommGroupType
from headrace.doors.replicas_options import LaunchedOptions as LaunchedOptions
from headrace.doors.replicas_options import Options as Options
from headrace.doors.replicas_partition import LeftOut as LeftOut
from headrace.doors.replicas_tree import ICustomArgParser as ICustomArgParser
from headrace.doors.replicas_tree import registerCustomArgParser as registerCustomArgParser

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
