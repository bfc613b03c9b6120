"""Tokenizer threads: a worker tokenizes with one thread.

Hugging Face's tokenizers have a pool of threads for whole batches. After a fork the pool has no threads, and where the
user has said TOKENIZERS_PARALLELISM=true the next batch waits for them for ever. Workers are as many as there is work
for; what the user has set counts only where no copy of a pool can have been inherited.
"""

import os
import sys

NAME = "TOKENIZERS_PARALLELISM"


def one_thread() -> None:
    """Called in a worker before any user code."""
    if NAME not in os.environ or "tokenizers" in sys.modules:
        os.environ[NAME] = "false"
