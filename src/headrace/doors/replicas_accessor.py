"""AsynchronousDataAccessor: any iterable, loaded in a process of its own ahead of the training loop.

A thin front: the loader's own workers, window and shared memory do the work. So what arrives stays valid as long as it is
held, may change its shape and type from item to item, and an error arrives as the exception that was raised.
"""

import enum
from collections.abc import Iterator, Sized
from typing import Any

from headrace.doors.replicas_feed import Async, Feed, Job
from headrace.doors.replicas_loader import DataLoader, DataLoaderMode, SharingStrategy
