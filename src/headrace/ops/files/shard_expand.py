"""Shard expand: names with ranges as all the names they stand for."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.op import Flat
from headrace.sources.listing import braces


@dataclass(frozen=True, slots=True)
class ShardExpand(Flat[str, str]):
    """`x-{000..009}` as ten names."""

    def spread(self, sample: str) -> Iterator[str]:
        yield from braces(sample)
