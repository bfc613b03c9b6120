"""In-batch shuffle: another order inside each batch."""

from dataclasses import dataclass
from typing import Any

from headrace.op import Each, place
from headrace.ops.chunk import DataChunk


@dataclass(frozen=True, slots=True)
class InBatchShuffle(Each[Any, DataChunk[Any]]):
    """The samples of each batch in a random order, keyed by the batch's number."""

    def apply(self, sample: Any) -> DataChunk[Any]:
        return DataChunk([sample[i] for i in place.rng().permutation(len(sample)).tolist()])

    @classmethod
    def name(cls) -> str:
        return "in_batch_shuffle"
