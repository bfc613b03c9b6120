"""Packing: tokens a second from texts that are tokenized on the way and cut into rows of 1024 tokens, end to end.

A loader may fill up or lose the last row of what it packs at a time; only real tokens are counted.
"""

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.text import documents, tokenizer, without_end

DOCUMENTS = 8192
LENGTH = 1024
SIZE = 8
WORKERS = 2
CASE = Case(
    name="text_pack",
    question="How many tokens a second, from texts tokenized by 2 workers and packed into rows of 1024?",
    targets=(
        Target("tokenized, packed end to end", "tokens/s", "tokens/s", ("headrace", "grain"), at_least=1.0),
        Target("tokenized, packed end to end", "tokens/s", "tokens/s", ("headrace", "hf"), at_least=1.0),
    ),
    needs="packed",
    deadline=240.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    texts = documents(effort.count(DOCUMENTS, least=256), 21)
    with subject.packed([texts], None, tokenizer(), length=LENGTH, size=SIZE, workers=WORKERS) as loader:
        return {"tokens/s": tokens_a_second(loader, expected(texts), effort)}


def expected(texts: list[str]) -> int:
    """All tokens of an epoch."""
    return sum(len(one.ids) for one in tokenizer().encode_batch(texts, add_special_tokens=False))


def tokens_a_second(loader: Any, epoch: int, effort: Effort) -> float:
    counted = Counted(without_end(loader))
    counted.take(epoch)
    return counted.rate(epoch, effort)


class Counted:
    """Batches, and the real tokens in them."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches
        self.real = self.room = 0

    def take(self, tokens: int) -> None:
        """Batches until so many tokens more have come."""
        until = self.real + tokens
        while self.real < until:
            batch = next(self.batches)
            rows, mask = batch["tokens"], batch.get("mask")
            if len(rows[0]) != LENGTH:
                raise AssertionError(f"a row has {len(rows[0])} tokens instead of {LENGTH}")
            self.room += len(rows) * LENGTH
            self.real += len(rows) * LENGTH if mask is None else int(mask.sum())

    def rate(self, epoch: int, effort: Effort) -> float:
        """Tokens a second over whole epochs."""
        self.real = self.room = 0
        began = time.perf_counter()
        while True:
            self.take(epoch)
            seconds = time.perf_counter() - began
            if seconds >= effort.seconds:
                return self.real / seconds
