"""Verbs for the fields of a sample, and for several samples at a time."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.ops.counts import BadCount, positive
from headrace.ops.shape.batch import Batch
from headrace.pipe.verbs.growing import Columns, Verbs, function, grow, keywords, length_of

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe

BATCH_SIZE = "Batch size is required to be larger than 0!"


class GroupVerbs(Verbs):
    """What a Pipe can do with fields and groups of samples."""

    __slots__ = ()

    # --- fields -----------------------------------------------------------------------------------------------------

    def drop(self, indices: Columns) -> "Pipe[Any]":
        """Samples without the fields `indices` (positions or keys)."""
        from headrace.ops.shape.fields import Drop

        return grow(self, Drop(indices))

    def slice(self, index: Columns, stop: int | None = None, step: int | None = None) -> "Pipe[Any]":
        """Only the fields `index:stop:step`, or those that a list names."""
        from headrace.ops.shape.fields import Slice

        return grow(self, Slice(index, stop, step))

    def flatten(self, indices: Columns = None) -> "Pipe[Any]":
        """The elements of nested fields in the place of the fields."""
        from headrace.ops.shape.fields import Flatten

        return grow(self, Flatten(indices))

    def add_index(self, index_name: str = "index") -> "Pipe[dict[Any, Any]]":
        """Dicts with their number under `index_name`."""
        from headrace.ops.shape.enumerate import AddIndex

        return grow(self, AddIndex(index_name))

    def rows2columnar(self, column_names: Sequence[Any] | None = None) -> "Pipe[dict[Any, list[Any]]]":
        """Each batch of rows as one dict of lists."""
        from headrace.ops.shape.fields import Rows2Columnar

        return grow(self, Rows2Columnar(tuple(column_names or ())))

    # --- groups -----------------------------------------------------------------------------------------------------

    def map_batches(
        self, fn: Callable[[list[Any]], Iterable[Any]], batch_size: int, input_col: Columns = None
    ) -> "Pipe[Any]":
        """Every element of `fn(list of batch_size samples)`."""
        from headrace.ops.shape.map import MapBatches

        positive(batch_size, BATCH_SIZE, BadCount)
        return grow(grow(self, Batch(batch_size)), MapBatches(function(fn), input_col))

    def async_map_batches(
        self,
        async_fn: Callable[..., Awaitable[Any]],
        batch_size: int,
        input_col: Columns = None,
        output_col: Columns = None,
        max_concurrency: int = 32,
        flatten: bool = True,
    ) -> "Pipe[Any]":
        """What a coroutine function returns for each sample, `batch_size` samples at a time, in order."""
        from headrace.ops.shape.batch_map import AsyncMap

        positive(batch_size, BATCH_SIZE, BadCount)
        mapped = grow(grow(self, Batch(batch_size)), AsyncMap(async_fn, input_col, output_col, max_concurrency))
        return _flat(mapped, self) if flatten else mapped

    def threadpool_map(
        self,
        fn: Callable[..., Any],
        input_col: Columns = None,
        output_col: Columns = None,
        scheduled_tasks: int = 128,
        max_workers: int | None = None,
        **threadpool_kwargs: object,
    ) -> "Pipe[Any]":
        """`fn` applied to every sample, in threads, `scheduled_tasks` samples at a time, in order."""
        from headrace.ops.shape.batch_map import ThreadMap

        positive(scheduled_tasks, "'scheduled_tasks' is required to be a positive integer.")
        if max_workers is not None:
            positive(max_workers, "'max_workers' is required to be a positive integer.")
        options = keywords(threadpool_kwargs)
        mapped = grow(
            grow(self, Batch(scheduled_tasks)), ThreadMap(function(fn), input_col, output_col, max_workers, options)
        )
        return _flat(mapped, self)

    def windowed(self, size: int, step: int = 1) -> "Pipe[list[Any]]":
        """Lists of `size` consecutive samples, one beginning at every `step`-th sample; no incomplete ones."""
        from headrace.ops.shape.windowed import SlidingWindow

        return grow(self, SlidingWindow(size, step))

    def bucketbatch(
        self,
        batch_size: int,
        drop_last: bool = False,
        batch_num: int = 100,
        bucket_num: int = 1,
        sort_key: Callable[[list[Any]], list[Any]] | None = None,
        use_in_batch_shuffle: bool = True,
    ) -> "Pipe[list[Any]]":
        """Batches of like samples: shuffled in pools, sorted in buckets by `sort_key`, then the batches shuffled."""
        positive(batch_size, BATCH_SIZE, BadCount)
        positive(batch_num, "Number of batches is required to be larger than 0!", BadCount)
        positive(bucket_num, "Number of buckets is required to be larger than 0!", BadCount)
        bucket = batch_size * batch_num
        pipe = cast("Pipe[Any]", self)
        if bucket_num > 1 or sort_key is None:
            pipe = _shuffled(pipe, bucket * bucket_num, use_in_batch_shuffle)
        if sort_key is not None:
            pipe = pipe.batch(bucket).map(function(sort_key)).unbatch()
        batches: Pipe[Any] = pipe.batch(batch_size, drop_last)
        if sort_key is not None:
            batches = _shuffled(batches, bucket_num if use_in_batch_shuffle else bucket, use_in_batch_shuffle)
        return batches

    def in_batch_shuffle(self) -> "Pipe[list[Any]]":
        """The samples of each batch in another order."""
        from headrace.ops.order.shuffle import InBatchShuffle

        return grow(self, InBatchShuffle())

    def groupby(
        self,
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> "Pipe[Any]":
        """Chunks of samples with the same key."""
        from headrace.ops.shape.groupby import GroupBy

        return grow(
            self,
            GroupBy(function(group_key_fn), keep_key, buffer_size, group_size, guaranteed_group_size, drop_remaining),
        )

    def max_token_bucketize(
        self,
        max_token_count: int,
        len_fn: Callable[[Any], int] = len,
        min_len: int = 0,
        max_len: int | None = None,
        buffer_size: int = 1000,
        include_padding: bool = False,
    ) -> "Pipe[list[Any]]":
        """Chunks of samples of like length with at most `max_token_count` tokens each."""
        from headrace.ops.text.max_token_bucketize import MaxTokenBucketize

        return grow(
            self, MaxTokenBucketize(max_token_count, function(len_fn), min_len, max_len, buffer_size, include_padding)
        )

    def shuffled_flatmap(
        self, fn: Callable[..., Iterable[Any]] | None = None, input_col: Columns = None, buffer_size: int = 100
    ) -> "Pipe[Any]":
        """Like flatmap, mixing the elements of `buffer_size` samples."""
        from headrace.ops.shape.shuffled_flatmap import ShuffledFlatmap

        return grow(self, ShuffledFlatmap(None if fn is None else function(fn), input_col, buffer_size))

    def repeat(self, times: int) -> "Pipe[Any]":
        """Each sample `times` times in a row."""
        from headrace.ops.order.cycle import Repeat

        return grow(self, Repeat(times))

    def set_length(self, length: int) -> "Pipe[Any]":
        """The same samples; `len()` is what you say."""
        from headrace.ops.shape.same import SetLength

        return grow(self, SetLength(length))


def _flat(batches: "Pipe[Any]", source: Verbs) -> "Pipe[Any]":
    """The results one by one, as many as the source has samples, if that is known."""
    flat, size = batches.unbatch(), length_of(source)
    return flat if size is None else flat.set_length(size)


def _shuffled(pipe: "Pipe[Any]", size: int, in_batches: bool) -> "Pipe[Any]":
    if not in_batches:
        return pipe.shuffle(buffer_size=size)
    return pipe.batch(size).in_batch_shuffle().unbatch()
