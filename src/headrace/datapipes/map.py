"""The classes of tables, by the names that users of TorchData know."""

from typing import TYPE_CHECKING

from headrace.doors.datapipes.map import CLASSES
from headrace.doors.datapipes.names import MapDataPipe as MapDataPipe

if TYPE_CHECKING:  # the classes by name
    from headrace.doors.datapipes.map import *  # noqa: F403
else:
    globals().update(CLASSES)
    __all__ = sorted(["MapDataPipe", *CLASSES])
