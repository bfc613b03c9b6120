"""Functions over a graph of pipes."""

from headrace.doors.datapipes.graph import *  # noqa: F403
from headrace.doors.datapipes.graph import __all__ as __all__
