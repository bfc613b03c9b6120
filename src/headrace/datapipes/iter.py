"""The classes of streams, by the names that users of TorchData know."""

from typing import TYPE_CHECKING

from headrace.doors.datapipes.iter import CLASSES
from headrace.doors.datapipes.names import IterDataPipe as IterDataPipe

if TYPE_CHECKING:  # the classes by name
    from headrace.doors.datapipes.iter import *  # noqa: F403
else:
    globals().update(CLASSES)
    __all__ = sorted(["IterDataPipe", *CLASSES])
