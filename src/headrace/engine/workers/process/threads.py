"""Threads: a worker computes with one thread, because there are as many workers as are needed."""

import os
import sys

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Set to 1 in new interpreters before anything is imported: a process with threads cannot be forked."""
TOKENIZERS = "TOKENIZERS_PARALLELISM"


def limit() -> None:
    """Let torch use one thread in this forked process.

    The threads that torch had made before the fork are missing here, and it would wait for them. A torch that is
    imported later makes none either: two workers with a thread for each core are in each other's way.
    """
    for name in LIMITS:
        os.environ.setdefault(name, "1")
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def limit_tokenizers() -> None:
    """Called in every worker before any user code.

    Hugging Face's tokenizers have a pool of threads for whole batches. After a fork the pool has no threads, and where
    the user has said TOKENIZERS_PARALLELISM=true the next batch waits for them for ever. What the user has set counts
    only where no copy of a pool can have been inherited.
    """
    if TOKENIZERS not in os.environ or "tokenizers" in sys.modules:
        os.environ[TOKENIZERS] = "false"
