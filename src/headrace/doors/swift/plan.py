"""Plan: which samples of the dataset make up each batch of each consumer, by arithmetic alone.

The dataset is a circle of `length` samples, cut into consecutive arcs: one for every worker of every consumer. The
shares of consumers differ by at most one sample, and so do arcs.

    shuffled       at each epoch all arcs move on together by the size of the largest, so every worker comes to read
                   everything; inside its arc a worker starts at a keyed place, goes round once, and mixes only samples
                   that stand within one window of `nearby` (0: the whole arc)
    not shuffled   a consumer reads its share from front to end, the same in every epoch

Batch b of a consumer is made by its worker b modulo workers; shuffled, it is a batch of that worker's arc. In each
epoch all consumers together read every sample exactly once, whatever the seeds are: only the order inside an arc is
keyed.

Every arc makes the same number of batches, so that no consumer waits for a step that another does not make: where one
arc ends on a full batch and another has a sample more, the first cuts its last batch in two. That cannot be done for
batches of one sample, nor with fewer samples than workers; then `batches` differs between consumers.
"""

from dataclasses import dataclass
from functools import lru_cache

from headrace.plan.order import Chunked, Shuffled, Windowed
from headrace.plan.seed import key


@dataclass(frozen=True, slots=True)
class ArcPlan:
    """The plan of a loader; the length of the dataset is an argument, since only workers know it."""

    consumers: int
    workers: int
    """Of one consumer."""
    batch_size: int
    shuffle: bool
    nearby: int
    seed: int

    def batches(self, length: int, consumer: int) -> int:
        """How many batches one epoch has for this consumer."""
        _, size = part(length, self.consumers, consumer)
        if not self.shuffle:
            return self._count(length, size)
        sizes = (part(size, self.workers, worker)[1] for worker in range(self.workers))
        return sum(self._count(length, arc) for arc in sizes)

    def indices(self, length: int, epoch: int, consumer: int, batch: int) -> list[int]:
        """The samples of one batch, in order."""
        first, size = part(length, self.consumers, consumer)
        if not self.shuffle:
            start, stop = self._bounds(length, size, batch)
            return list(range(first + start, first + stop))
        row, worker = divmod(batch, self.workers)
        offset, arc = part(size, self.workers, worker)
        start, stop = self._bounds(length, arc, row)
        moved = first + offset + epoch * self._largest(length)
        number = consumer * self.workers + worker
        cut = key(self.seed, "swift", "cut", epoch, number) % arc
        keyed = key(self.seed, "swift", "order", epoch, number)
        order = Windowed(arc, self.nearby, keyed) if self.nearby else Shuffled(arc, keyed)
        return [(moved + (cut + place) % arc) % length for place in _looked_up(order).span(start, stop)]

    def _largest(self, length: int) -> int:
        """The size of the largest arc, or, where nothing is shuffled, of the largest share."""
        return -(-length // (self.consumers * self.workers if self.shuffle else self.consumers))

    def _count(self, length: int, size: int) -> int:
        """Batches of an arc: as many as the largest arc needs, if it has that many samples."""
        return min(-(-self._largest(length) // self.batch_size), size)

    def _bounds(self, length: int, size: int, batch: int) -> tuple[int, int]:
        """Where in its arc a batch starts and stops."""
        count, full = self._count(length, size), self.batch_size
        if not 0 <= batch < count:
            raise IndexError(f"batch {batch} is outside an epoch of {count} batches")
        if size > full * (count - 1) or batch < count - 2:
            return batch * full, min((batch + 1) * full, size)
        # The arc ends on a full batch, but others make one more: the last full batch serves for two.
        middle = full * (count - 2) + (full + 1) // 2
        return (full * batch, middle) if batch == count - 2 else (middle, size)


@lru_cache(maxsize=4)
def _looked_up(order: Windowed | Shuffled) -> Chunked:
    """A worker reads one order after the other, each from front to end: it is worked out in large pieces."""
    return Chunked(order)


def part(length: int, parts: int, number: int) -> tuple[int, int]:
    """Start and size of one of `parts` consecutive parts, whose sizes differ by at most one, larger ones first."""
    size, extra = divmod(length, parts)
    return number * size + min(number, extra), size + (number < extra)
