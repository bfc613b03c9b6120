"""The classes of tables, by the names that users of TorchData know."""

from headrace.doors.datapipes.map import *  # noqa: F403
from headrace.doors.datapipes.map import __all__ as __all__
