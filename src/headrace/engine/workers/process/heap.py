"""The heap of a worker: memory that one batch has used is kept for the next; what a fork inherited is left alone.

The C library hands freed memory back to the system as soon as there are a few megabytes of it, and a worker frees a
whole batch of samples at a time: the next batch then gets every page anew, cleared by the kernel. For decoded images
that is a fifth of the worker's time. What is kept is at most what the worker has used at once.
"""

import ctypes
import gc
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of the settings, in malloc.h."""
KEPT = 256 << 20
"""Bytes of freed memory that a worker keeps."""
FROM_HEAP = 32 << 20
"""Anything larger is mapped by itself; the largest value that the C library takes."""


def keep() -> None:
    """Keep freed memory in this process, unless the user has set malloc options, or another C library is in use."""
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT)
        mallopt(MMAP_THRESHOLD, FROM_HEAP)


def inherit() -> None:
    """In a process that was just forked: keep the garbage collector away from objects of the parent.

    It would walk every one of them (torch alone leaves 170,000), which takes a tenth of a second and writes into each,
    so that the system copies all their pages: both while the first batch is waited for.
    """
    gc.freeze()
