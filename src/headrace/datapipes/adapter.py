"""Changes that DataLoader2 makes to a graph before it runs."""

from headrace.doors.datapipes.adapter import Adapter, CacheTimeout, Shuffle

__all__ = ["Adapter", "CacheTimeout", "Shuffle"]
