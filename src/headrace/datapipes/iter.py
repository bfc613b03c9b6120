"""The classes of streams, by the names that users of TorchData know."""

from headrace.doors.datapipes.iter import *  # noqa: F403
from headrace.doors.datapipes.iter import __all__ as __all__
