"""In-batch shuffle: another order inside each batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.op import Each, place
from headrace.ops.shape.batch import DataChunk
from headrace.plan.seed import generator, key


@dataclass(frozen=True, slots=True)
class InBatchShuffle(Each[Any, DataChunk[Any]]):
    """The samples of each batch in a random order, keyed by the batch's number."""

    def apply(self, sample: Sequence[Any]) -> DataChunk[Any]:
        # A generator of its own: that of `rng()` goes on when the same batch is asked for twice in a row.
        spot = place.spot
        assert spot.here is not None
        order = generator(key(spot.here.seed, "sample", spot.position)).permutation(len(sample))
        return DataChunk([sample[i] for i in order.tolist()])
