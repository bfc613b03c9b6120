"""The classes of `headrace.datapipes.iter`: one per verb, made from a table, and some sources that have no verb."""

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any, ClassVar

from headrace.doors.datapipes import verbs as verbs
from headrace.doors.datapipes.classes import CLASS_OF, make_class
from headrace.doors.datapipes.lowering import lowered
from headrace.doors.datapipes.nodes import DataPipe, IterDataPipe, is_table
from headrace.errors import BadOption, BadPipe, NoLength
from headrace.op import Op
from headrace.ops.branch.fork import Column
from headrace.ops.order.sharding import Shard
from headrace.ops.order.shuffle import InBatchShuffle, Shuffle
from headrace.ops.shape import map as functions
from headrace.ops.shape.batch import Batch, Unbatch
from headrace.ops.shape.same import Same, SetLength
from headrace.ops.shape.shuffled_flatmap import ShuffledFlatmap
from headrace.pipe.graph import Pipe
from headrace.pipe.verbs.helpful import helpful
from headrace.tables.ops.columns import FlatmapColumns
from headrace.tracebacks import users_line

MODULE = "headrace.datapipes.iter"


class SHARDING_PRIORITIES(IntEnum):
    """Among whom the samples are divided."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


# --- mixins: methods and lengths of some classes ----------------------------------------------------------------------


class Seeded:
    """A random pipe, whose seed can be set."""

    def set_seed(self, seed: int) -> Any:
        """The next iteration without a loader uses this seed; later ones draw new seeds."""
        self.__dict__["_hand_set_seed"] = int(seed)
        return self

    @property
    def _seed(self) -> int | None:
        return self.__dict__.get("_hand_set_seed")


class RandomOrder(Seeded):
    """A pipe whose order is random; that can be switched off."""

    def set_shuffle(self, shuffle: bool = True) -> Any:
        """Switch the shuffling on or off."""
        self.__dict__["_off"] = not shuffle
        return self

    def current_op(self, op: Op[Any, Any]) -> Op[Any, Any]:
        if not self.__dict__.get("_off"):
            return op
        return FlatmapColumns(op.fn, op.input_col) if isinstance(op, ShuffledFlatmap) else Same()


class ShardPoint:
    """A shard point, whose share can be set by hand."""

    def apply_sharding(
        self, num_of_instances: int, instance_id: int, sharding_group: int = SHARDING_PRIORITIES.DEFAULT
    ) -> None:
        """Take every `num_of_instances`-th sample, from `instance_id` on, among the members of a group."""
        if instance_id >= num_of_instances:
            raise BadOption(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        groups = {**self.__dict__.get("_groups", {}), int(sharding_group): (num_of_instances, instance_id)}
        if len(groups) > 1 and SHARDING_PRIORITIES.DEFAULT in groups:
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.__dict__["_groups"] = groups

    def is_shardable(self) -> bool:
        return True

    def current_op(self, op: Any) -> Op[Any, Any]:
        only = op.group
        groups = [v for k, v in sorted(self.__dict__.get("_groups", {}).items(), reverse=True) if only in (None, k)]
        if not groups:
            return op  # type: ignore[no-any-return]
        count, number = 1, 0
        for instances, instance in groups:
            number += count * instance
            count *= instances
        return Shard(count, number)


class LimitedLength(DataPipe[Any]):
    """A pipe of at most so many samples."""

    def __len__(self) -> int:
        (source,) = self._sources
        limit = self._constructor_args["limit"]
        known = lowered(source).length()
        if known is not None:
            return known if limit is None else min(known, limit)
        if limit is None:
            raise NoLength("The length of this HeaderIterDataPipe cannot be determined.")
        warnings.warn(
            "The length of this HeaderIterDataPipe is inferred to be equal to its limit. "
            "The actual value may be smaller if the actual length of source_datapipe is smaller than the limit.",
            stacklevel=users_line(),
        )
        return int(limit)


class FromFunction:
    """A pipe whose length depends on what its function returns."""

    length_text: ClassVar[str] = "{name}'s length relies on the output of its function."


class NeverSized:
    """A pipe that never has a length."""

    length_text = "object of type '{name}' has no len()"


class FlattensLists(RandomOrder, FromFunction, DataPipe[Any]):
    """A shuffled flatmap: without a function, it is as long as all its lists together."""

    def __len__(self) -> int:
        return super().__len__() if self._constructor_args["fn"] is not None else sum(map(len, self._sources[0]))


class Endless:
    """A pipe without end."""

    length_text = "This {name} instance cycles forever, and therefore doesn't have valid length"


class LengthOnceRead(DataPipe[Any]):
    """A cache, which knows its length when it has been read."""

    length_text = "{name} instance doesn't have valid length until the cache is loaded."

    def __len__(self) -> int:
        known = lowered(self._sources[0]).length()
        if known is not None:
            return known
        for samples in self._built.full.values():
            return len(samples)
        raise NoLength(self.length_text.format(name=self.original))


class Pausable:
    """A pipe that has a thread in TorchData, which can be paused; here the engine reads ahead."""

    def pause(self) -> None:
        """Does nothing."""

    resume = shutdown = pause


class InTrainingProcess(Pausable):
    """A pipe that runs where the training loop runs."""

    def is_replicable(self) -> bool:
        return False


class DecodeHandlers(DataPipe[Any]):
    """A pipe that decodes by handlers, of which more can be added."""

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Try these after the handlers that there are."""
        self._built = replace(self._built, handlers=(*self._built.handlers, *handler))


class SplitPart(DataPipe[Any]):
    """A part of a random split."""

    def override_seed(self, seed: int) -> Any:
        """Split by another seed from now on."""
        self._built = replace(self._built, seed=seed)
        return self


# --- the classes ------------------------------------------------------------------------------------------------------

LEFT_OUT: dict[str, str] = {
    "AISFileLister": "AIStore speaks S3: use list_files_by_fsspec() with an s3:// URL and its endpoint",
    "AISFileLoader": "AIStore speaks S3: use open_files_by_fsspec() with an s3:// URL and its endpoint",
    "S3FileLister": "it was a compiled part of torchdata: use list_files_by_fsspec() with an s3:// URL",
    "S3FileLoader": "it was a compiled part of torchdata: use open_files_by_fsspec() with an s3:// URL",
}
"""Classes for services and libraries that no longer exist, and what to use instead."""


def _stream(name: str, verb: str = "", *mixins: type, make: Callable[..., Any] | None = None) -> Any:
    """The class of a verb: the verb of Pipe with this name, or `make` where the arguments differ from it."""
    make = _with_pipe(helpful(make) if make is not None else getattr(Pipe, verb))
    return make_class(name, make, IterDataPipe, MODULE, mixins, verb, IterDataPipe)


def _left_out(name: str) -> Any:
    reason = LEFT_OUT[name]

    def make(*args: object, **kwargs: object) -> Any:
        raise BadPipe(f"{name} is left out of headrace: {reason}")

    make.__doc__ = f"Left out: {reason}."
    return _stream(name, make=make)


def _with_pipe(make: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, for a first argument that may be any data; a function without `self` wraps its arguments itself."""
    if "self" not in inspect.signature(make).parameters:
        return make

    @functools.wraps(make)
    def verb(self: object, *args: object, **kwargs: object) -> Any:
        if is_table(self):
            self = MapToIterConverter(self)
        return make(verbs.as_pipe(self), *args, **kwargs)

    return verb


AISFileLister = _left_out("AISFileLister")
AISFileLoader = _left_out("AISFileLoader")
BatchAsyncMapper = _stream("BatchAsyncMapper", "async_map_batches")
BatchMapper = _stream("BatchMapper", "map_batches", FromFunction)
Batcher = _stream("Batcher", "batch", make=verbs.batch)
BucketBatcher = _stream("BucketBatcher", "bucketbatch")
Bz2FileLoader = _stream("Bz2FileLoader", "load_from_bz2")
CSVDictParser = _stream("CSVDictParser", "parse_csv_as_dict", NeverSized)
CSVParser = _stream("CSVParser", "parse_csv", NeverSized)
Collator = _stream("Collator", "collate", make=verbs.collate)
Concater = _stream("Concater", "concat", make=verbs.concat)
Cycler = _stream("Cycler", "cycle", Endless)
DataFrameMaker = _stream("DataFrameMaker", "dataframe", make=verbs.dataframe)
Decompressor = _stream("Decompressor", "decompress", NeverSized)
Demultiplexer = _stream("Demultiplexer", "demux")
Dropper = _stream("Dropper", "drop")
EndOnDiskCacheHolder = _stream("EndOnDiskCacheHolder", "end_caching")
Enumerator = _stream("Enumerator", "enumerate", make=verbs.enumerate_)
Extractor = _stream("Extractor", "extract", NeverSized)
FSSpecFileLister = _stream("FSSpecFileLister", "list_files_by_fsspec", NeverSized, make=verbs.list_files_by_fsspec)
FSSpecFileOpener = _stream("FSSpecFileOpener", "open_files_by_fsspec")
FSSpecSaver = _stream("FSSpecSaver", "save_by_fsspec")
FileLister = _stream("FileLister", "list_files", make=verbs.list_files)
FileOpener = _stream("FileOpener", "open_files")
Filter = _stream("Filter", "filter", NeverSized, make=verbs.filter_)
FlatMapper = _stream("FlatMapper", "flatmap", FromFunction, make=verbs.flatmap)
Flattener = _stream("Flattener", "flatten")
Forker = _stream("Forker", "fork")
FullSync = _stream("FullSync", "fullsync", InTrainingProcess)
GDriveReader = _stream("GDriveReader", "read_from_gdrive")
Grouper = _stream("Grouper", "groupby", NeverSized)
HashChecker = _stream("HashChecker", "check_hash")
Header = _stream("Header", "header", LimitedLength)
HttpReader = _stream("HttpReader", "read_from_http")
HuggingFaceHubReader = _stream("HuggingFaceHubReader", make=verbs.huggingface)
InBatchShuffler = _stream("InBatchShuffler", "in_batch_shuffle", RandomOrder)
InMemoryCacheHolder = _stream("InMemoryCacheHolder", "in_memory_cache", LengthOnceRead)
IndexAdder = _stream("IndexAdder", "add_index")
IoPathFileLister = _stream("IoPathFileLister", "list_files_by_iopath", NeverSized, make=verbs.list_files_by_iopath)
IoPathFileOpener = _stream("IoPathFileOpener", "open_files_by_iopath", make=verbs.open_files_by_iopath)
IoPathSaver = _stream("IoPathSaver", "save_by_iopath", make=verbs.save_by_iopath)
IterKeyZipper = _stream("IterKeyZipper", "zip_with_iter")
IterableWrapper = _stream("IterableWrapper", make=verbs.wrap)
JsonParser = _stream("JsonParser", "parse_json_files")
LengthSetter = _stream("LengthSetter", "set_length")
LineReader = _stream("LineReader", "readlines", NeverSized)
MapKeyZipper = _stream("MapKeyZipper", "zip_with_map")
MapToIterConverter = _stream("MapToIterConverter", make=verbs.to_iter)
Mapper = _stream("Mapper", "map", make=verbs.map_)
MaxTokenBucketizer = _stream("MaxTokenBucketizer", "max_token_bucketize", NeverSized)
Multiplexer = _stream("Multiplexer", "mux", make=verbs.mux)
MultiplexerLongest = _stream("MultiplexerLongest", "mux_longest", make=verbs.mux_longest)
OnDiskCacheHolder = _stream("OnDiskCacheHolder", "on_disk_cache", NeverSized)
OnlineReader = _stream("OnlineReader", "read_from_remote")
ParagraphAggregator = _stream("ParagraphAggregator", "lines_to_paragraphs", NeverSized)
ParquetDataFrameLoader = _stream(
    "ParquetDataFrameLoader", "load_parquet_as_df", NeverSized, make=verbs.load_parquet_as_df
)
PinMemory = _stream("PinMemory", "pin_memory", InTrainingProcess, make=verbs.pin_memory)
Prefetcher = _stream("Prefetcher", "prefetch", Pausable)
RandomSplitter = _stream("RandomSplitter", "random_split", SplitPart)
RarArchiveLoader = _stream("RarArchiveLoader", "load_from_rar")
Repeater = _stream("Repeater", "repeat")
RoundRobinDemultiplexer = _stream("RoundRobinDemultiplexer", "round_robin_demux")
RoutedDecoder = _stream("RoutedDecoder", "routed_decode", DecodeHandlers)
Rows2Columnar = _stream("Rows2Columnar", "rows2columnar")
S3FileLister = _left_out("S3FileLister")
S3FileLoader = _left_out("S3FileLoader")
SampleMultiplexer = _stream("SampleMultiplexer", "", Seeded, make=verbs.sample_multiplexer)
Sampler = _stream("Sampler", make=verbs.sampler)
Saver = _stream("Saver", "save_to_disk")
ShardExpander = _stream("ShardExpander", "shard_expand", NeverSized)
ShardingFilter = _stream("ShardingFilter", "sharding_filter", ShardPoint)
ShardingRoundRobinDispatcher = _stream("ShardingRoundRobinDispatcher", "sharding_round_robin_dispatch")
ShuffledFlatMapper = _stream("ShuffledFlatMapper", "shuffled_flatmap", FlattensLists)
Shuffler = _stream("Shuffler", "shuffle", RandomOrder, make=verbs.shuffle)
Slicer = _stream("Slicer", "slice")
StreamReader = _stream("StreamReader", "read_from_stream", NeverSized)
TFRecordLoader = _stream("TFRecordLoader", "load_from_tfrecord", make=verbs.load_from_tfrecord)
TarArchiveLoader = _stream("TarArchiveLoader", "load_from_tar")
ThreadPoolMapper = _stream("ThreadPoolMapper", "threadpool_map")
UnBatcher = _stream("UnBatcher", "unbatch", NeverSized, make=verbs.unbatch)
UnZipper = _stream("UnZipper", "unzip")
WebDataset = _stream("WebDataset", "webdataset", NeverSized)
XzFileLoader = _stream("XzFileLoader", "load_from_xz")
ZipArchiveLoader = _stream("ZipArchiveLoader", "load_from_zip")
Zipper = _stream("Zipper", "zip", make=verbs.zip_)
ZipperLongest = _stream("ZipperLongest", "zip_longest", make=verbs.zip_longest)

CLASSES = {name: made for name, made in globals().items() if getattr(made, "__module__", "") == MODULE}
CLASS_OF.update({
    Batch: Batcher, Column: Mapper, functions.Filter: Filter, functions.Flatmap: FlatMapper, functions.Map: Mapper,
    InBatchShuffle: InBatchShuffler, SetLength: LengthSetter, Shuffle: Shuffler, Unbatch: UnBatcher,
})  # fmt: skip
