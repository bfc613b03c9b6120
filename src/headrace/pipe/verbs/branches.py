"""Verbs that make several pipes out of one, or one out of several."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import BadOption
from headrace.pipe.verbs.growing import Verbs, function, grow, length_of
from headrace.tracebacks import users_line

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe


class BranchVerbs(Verbs):
    """What a Pipe can do with branches."""

    __slots__ = ()

    def fork(self, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        """`num_instances` pipes with the same samples, which are read once."""
        from headrace.ops.branch.fork import Fork, ForkTap

        _instances(num_instances)
        if num_instances == 1:
            return self
        _buffer(buffer_size, "fork")
        node = grow(self, Fork(num_instances, buffer_size))
        return [grow(node, ForkTap(i, num_instances, buffer_size, copy)) for i in range(num_instances)]

    def demux(
        self,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> "list[Pipe[Any]]":
        """`num_instances` pipes; each sample goes to the one whose number `classifier_fn` returns."""
        from headrace.ops.branch.fork import Classify, DemuxTap

        _instances(num_instances)
        _buffer(buffer_size, "demux")
        node = grow(self, Classify(function(classifier_fn), num_instances, drop_none))
        return [grow(node, DemuxTap(i, buffer_size)) for i in range(num_instances)]

    def round_robin_demux(self, num_instances: int, buffer_size: int = 1000) -> "list[Pipe[Any]]":
        """`num_instances` pipes, which get the samples in turn."""
        from headrace.ops.branch.fork import Fork, TurnTap

        if num_instances < 1:
            raise BadOption(f"Expected `num_instaces` larger than 0, but {num_instances} is found")
        if num_instances == 1:
            warnings.warn(
                "The operation of `round_robin_demux` with `num_instances=1` is an no-op and returns the provided "
                "`datapipe` in a list directly",
                stacklevel=users_line(),
            )
            return [cast("Pipe[Any]", self)]
        _buffer(buffer_size, "round_robin_demux")
        node = grow(self, Fork(num_instances, buffer_size))
        return [grow(node, TurnTap(i, num_instances, buffer_size)) for i in range(num_instances)]

    def unzip(
        self, sequence_length: int, buffer_size: int = 1000, columns_to_skip: Sequence[int] | None = None
    ) -> "list[Pipe[Any]]":
        """One pipe per field of the samples."""
        from headrace.ops.branch.fork import Column, Fork, ForkTap

        kept = [i for i in range(sequence_length) if i not in (columns_to_skip or ())]
        if not kept:
            raise RuntimeError("All instances are being filtered out in UnZipperIterDataPipe: keep at least one column")
        if len(kept) == 1:
            return [grow(self, Column(kept[0]))]
        _buffer(buffer_size, "unzip")
        node = grow(self, Fork(len(kept), buffer_size))
        return [grow(grow(node, ForkTap(i, len(kept), buffer_size)), Column(c)) for i, c in enumerate(kept)]

    def random_split(
        self,
        weights: Mapping[Any, float],
        seed: int,
        total_length: int | None = None,
        target: object = None,
    ) -> Any:
        """One pipe per key of `weights`, each with its random part of the samples; only one, if `target` names it."""
        from headrace.ops.order.random_split import RandomSplit, part_sizes

        if total_length is None:
            total_length = length_of(self)
            if total_length is None:
                raise TypeError(
                    "RandomSplitter needs `total_length`, but it is unable to infer it from the `len` of the source: "
                    "give random_split(total_length=)"
                )
        if not weights or any(not w >= 0 for w in weights.values()) or sum(weights.values()) <= 0:
            raise BadOption(f"random_split(weights=) needs numbers >= 0 with a positive sum, not {dict(weights)!r}")
        if target is not None and target not in weights:
            raise KeyError(f"`target={target}` does not match any key in `weights`.")
        counts = part_sizes(list(weights.values()), total_length)
        parts = {name: grow(self, RandomSplit(counts, i, seed)) for i, name in enumerate(weights)}
        return list(parts.values()) if target is None else parts[target]

    def mux(self, *datapipes: "Pipe[Any]") -> "Pipe[Any]":
        """One sample from each pipe in turn, in whole rounds."""
        from headrace.ops.branch.mux import Mux

        return grow(self, Mux(), *datapipes)

    def mux_longest(self, *datapipes: "Pipe[Any]") -> "Pipe[Any]":
        """One sample from each pipe in turn, until all have ended."""
        from headrace.ops.branch.mux import MuxLongest

        return grow(self, MuxLongest(), *datapipes)

    def zip_longest(self, *datapipes: "Pipe[Any]", fill_value: object = None) -> "Pipe[tuple[Any, ...]]":
        """Tuples of one sample from each pipe, until all have ended."""
        from headrace.ops.branch.zip import ZipLongest

        return grow(self, ZipLongest(fill_value), *datapipes)

    def zip_with_iter(
        self,
        ref_datapipe: "Pipe[Any]",
        key_fn: Callable[[Any], Any],
        ref_key_fn: Callable[[Any], Any] | None = None,
        keep_key: bool = False,
        buffer_size: int | None = 10000,
        merge_fn: Callable[[Any, Any], Any] | None = None,
    ) -> "Pipe[Any]":
        """Each sample with the one of `ref_datapipe` that has the same key."""
        from headrace.ops.branch.zip_with import ZipWithIter
        from headrace.pipe.graph import Pipe

        if not isinstance(ref_datapipe, Pipe):
            raise TypeError(f"ref_datapipe must be a IterDataPipe, but its type is {type(ref_datapipe)} instead.")
        merge = None if merge_fn is None else function(merge_fn)
        op = ZipWithIter(function(key_fn), ref_key_fn, keep_key, buffer_size, merge)
        return grow(self, op, ref_datapipe)

    def zip_with_map(
        self,
        map_datapipe: object,
        key_fn: Callable[[Any], Any],
        merge_fn: Callable[[Any, Any], Any] | None = None,
        keep_key: bool = False,
    ) -> "Pipe[Any]":
        """Each sample with what `map_datapipe` has under its key."""
        from headrace.ops.branch.zip_with import ZipWithMap

        if not hasattr(map_datapipe, "__getitem__"):
            raise TypeError(f"map_datapipe must be a MapDataPipe, but its type is {type(map_datapipe)} instead.")
        merge = None if merge_fn is None else function(merge_fn)
        return grow(self, ZipWithMap(map_datapipe, function(key_fn), merge, keep_key))


def _instances(count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise BadOption(f"Expected `num_instances` larger than 0, but {count} is found")


def _buffer(size: int, verb: str) -> None:
    if size == 0:
        raise BadOption(f"`buffer_size` of {verb} must be larger than 0, or -1 for no limit")
    if size < 0:
        warnings.warn(
            f"Unlimited buffer size is set for `{verb}`, please be aware of OOM at random places",
            stacklevel=users_line(),
        )
