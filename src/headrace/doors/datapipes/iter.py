"""The classes of `headrace.datapipes.iter`: one per verb, made from a table, and some sources that have no verb."""

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any, ClassVar

from headrace.doors.datapipes import verbs as verbs
from headrace.doors.datapipes.classes import CLASS_OF, make_class, put_verb
from headrace.doors.datapipes.lowering import lowered
from headrace.doors.datapipes.nodes import DataPipe, IterDataPipe, is_table
from headrace.errors import BadOption, BadPipe, NoLength
from headrace.op import Op
from headrace.ops.branch.fork import Column
from headrace.ops.order.in_batch_shuffle import InBatchShuffle
from headrace.ops.order.sharding import Shard
from headrace.ops.order.shuffle import Shuffle
from headrace.ops.shape.batch import Batch, Unbatch
from headrace.ops.shape.map import Filter, Flatmap, Map
from headrace.ops.shape.same import Same, SetLength
from headrace.ops.shape.shuffled_flatmap import ShuffledFlatmap
from headrace.pipe.graph import Pipe
from headrace.tables.ops.columns import FlatmapColumns

MODULE = "headrace.datapipes.iter"


class SHARDING_PRIORITIES(IntEnum):
    """Who shares the samples."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


# --- what some classes can do besides being a verb --------------------------------------------------------------------


class Seeded:
    """A pipe that draws by chance: it can be told its seed."""

    def set_seed(self, seed: int) -> Any:
        """The next iteration without a loader uses this seed; those after it draw their own again."""
        self.__dict__["_told"] = int(seed)
        return self

    @property
    def _seed(self) -> int | None:
        return self.__dict__.get("_told")


class RandomOrder(Seeded):
    """A pipe whose order is random: it can be switched off, too."""

    def set_shuffle(self, shuffle: bool = True) -> Any:
        """Switch the shuffling on or off."""
        self.__dict__["_off"] = not shuffle
        return self

    def in_force(self, op: Op[Any, Any]) -> Op[Any, Any]:
        if not self.__dict__.get("_off"):
            return op
        return FlatmapColumns(op.fn, op.input_col) if isinstance(op, ShuffledFlatmap) else Same()


class Shards:
    """A shard point that can be told by hand which share to take."""

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

    def in_force(self, op: Any) -> Op[Any, Any]:
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
        limit = self._given["limit"]
        known = lowered(source).length()
        if known is not None:
            return known if limit is None else min(known, limit)
        if limit is None:
            raise NoLength("The length of this HeaderIterDataPipe cannot be determined.")
        warnings.warn(
            "The length of this HeaderIterDataPipe is inferred to be equal to its limit. "
            "The actual value may be smaller if the actual length of source_datapipe is smaller than the limit.",
            stacklevel=2,
        )
        return int(limit)


class FromFunction:
    """A pipe whose function decides how many samples there are."""

    length_text: ClassVar[str] = "{name}'s length relies on the output of its function."


class NoLen:
    """A pipe that never knows."""

    length_text = "object of type '{name}' has no len()"


class OfLists(RandomOrder, FromFunction, DataPipe[Any]):
    """Without a function, as long as all its lists together."""

    def __len__(self) -> int:
        return super().__len__() if self._given["fn"] is not None else sum(map(len, self._sources[0]))


class Endless:
    length_text = "This {name} instance cycles forever, and therefore doesn't have valid length"


class UntilRead(DataPipe[Any]):
    length_text = "{name} instance doesn't have valid length until the cache is loaded."

    def __len__(self) -> int:
        known = lowered(self._sources[0]).length()
        if known is not None:
            return known
        for samples in self._built.store.full.values():
            return len(samples)
        raise NoLength(self.length_text.format(name=self.original))


class Pausable:
    """A pipe that had a thread of its own; reading ahead is the engine's now, and nothing has to stop."""

    def pause(self) -> None:
        """Nothing is read until somebody asks."""

    resume = shutdown = pause


class InTrainingProcess(Pausable):
    """A pipe that runs where the training loop runs."""

    def is_replicable(self) -> bool:
        return False


class Decodes(DataPipe[Any]):
    """A pipe to which ways of decoding can be added."""

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Ask these, too, after those that there are."""
        self._built = replace(self._built, handlers=(*self._built.handlers, *handler))


class SplitPart(DataPipe[Any]):
    """A part of a random split."""

    def override_seed(self, seed: int) -> Any:
        """Split by another seed from now on."""
        self._built = replace(self._built, seed=seed)
        return self


# --- the table --------------------------------------------------------------------------------------------------------

MIXINS: dict[str, type] = {
    "BatchMapper": FromFunction, "Cycler": Endless, "FlatMapper": FromFunction, "FullSync": InTrainingProcess,
    "Header": LimitedLength, "InBatchShuffler": RandomOrder, "InMemoryCacheHolder": UntilRead,
    "PinMemory": InTrainingProcess, "Prefetcher": Pausable, "RandomSplitter": SplitPart, "RoutedDecoder": Decodes,
    "ShardingFilter": Shards, "ShuffledFlatMapper": OfLists, "Shuffler": RandomOrder,
}  # fmt: skip

for _name in (
    "CSVDictParser", "CSVParser", "Decompressor", "Extractor", "FSSpecFileLister", "Filter", "Grouper",
    "IoPathFileLister", "LineReader",
    "MaxTokenBucketizer", "OnDiskCacheHolder", "ParagraphAggregator", "ParquetDataFrameLoader", "ShardExpander",
    "StreamReader", "UnBatcher", "WebDataset",
):  # fmt: skip
    MIXINS[_name] = NoLen

VERBS: dict[str, str] = {
    "BatchAsyncMapper": "async_map_batches", "BatchMapper": "map_batches", "Batcher": "batch",
    "BucketBatcher": "bucketbatch", "Bz2FileLoader": "load_from_bz2", "CSVDictParser": "parse_csv_as_dict",
    "CSVParser": "parse_csv", "Collator": "collate", "Concater": "concat", "Cycler": "cycle",
    "DataFrameMaker": "dataframe", "Decompressor": "decompress", "Demultiplexer": "demux", "Dropper": "drop",
    "EndOnDiskCacheHolder": "end_caching", "Enumerator": "enumerate", "Extractor": "extract",
    "FSSpecFileLister": "list_files_by_fsspec", "FSSpecFileOpener": "open_files_by_fsspec",
    "FSSpecSaver": "save_by_fsspec", "FileLister": "list_files", "FileOpener": "open_files", "Filter": "filter",
    "FlatMapper": "flatmap", "Flattener": "flatten", "Forker": "fork", "FullSync": "fullsync",
    "GDriveReader": "read_from_gdrive", "Grouper": "groupby", "HashChecker": "check_hash", "Header": "header",
    "HttpReader": "read_from_http", "InBatchShuffler": "in_batch_shuffle", "InMemoryCacheHolder": "in_memory_cache",
    "IndexAdder": "add_index", "IoPathFileLister": "list_files_by_iopath",
    "IoPathFileOpener": "open_files_by_iopath", "IoPathSaver": "save_by_iopath", "IterKeyZipper": "zip_with_iter",
    "JsonParser": "parse_json_files",
    "LengthSetter": "set_length", "LineReader": "readlines", "MapKeyZipper": "zip_with_map", "Mapper": "map",
    "MaxTokenBucketizer": "max_token_bucketize", "Multiplexer": "mux", "MultiplexerLongest": "mux_longest",
    "OnDiskCacheHolder": "on_disk_cache", "OnlineReader": "read_from_remote",
    "ParagraphAggregator": "lines_to_paragraphs", "ParquetDataFrameLoader": "load_parquet_as_df",
    "PinMemory": "pin_memory", "Prefetcher": "prefetch", "RandomSplitter": "random_split",
    "RarArchiveLoader": "load_from_rar", "Repeater": "repeat", "RoundRobinDemultiplexer": "round_robin_demux",
    "RoutedDecoder": "routed_decode", "Rows2Columnar": "rows2columnar", "Saver": "save_to_disk",
    "ShardExpander": "shard_expand", "ShardingFilter": "sharding_filter",
    "ShardingRoundRobinDispatcher": "sharding_round_robin_dispatch", "ShuffledFlatMapper": "shuffled_flatmap",
    "Shuffler": "shuffle", "Slicer": "slice", "StreamReader": "read_from_stream",
    "TFRecordLoader": "load_from_tfrecord", "TarArchiveLoader": "load_from_tar", "ThreadPoolMapper": "threadpool_map",
    "UnBatcher": "unbatch", "UnZipper": "unzip", "WebDataset": "webdataset", "XzFileLoader": "load_from_xz",
    "ZipArchiveLoader": "load_from_zip", "Zipper": "zip", "ZipperLongest": "zip_longest",
}  # fmt: skip
"""Class -> verb."""

DIFFERENT: dict[str, Callable[..., Any]] = {
    "batch": verbs.batch, "collate": verbs.collate, "concat": verbs.concat, "dataframe": verbs.dataframe,
    "enumerate": verbs.enumerate_, "filter": verbs.filter_, "flatmap": verbs.flatmap,
    "list_files": verbs.list_files, "list_files_by_fsspec": verbs.list_files_by_fsspec,
    "list_files_by_iopath": verbs.list_files_by_iopath, "open_files_by_iopath": verbs.open_files_by_iopath,
    "save_by_iopath": verbs.save_by_iopath,
    "load_from_tfrecord": verbs.load_from_tfrecord, "load_parquet_as_df": verbs.load_parquet_as_df, "map": verbs.map_,
    "mux": verbs.mux,
    "mux_longest": verbs.mux_longest, "pin_memory": verbs.pin_memory, "shuffle": verbs.shuffle,
    "unbatch": verbs.unbatch, "zip": verbs.zip_, "zip_longest": verbs.zip_longest,
}  # fmt: skip
"""Verbs whose arguments are not those of Pipe."""

SOURCES: dict[str, Callable[..., Any]] = {
    "HuggingFaceHubReader": verbs.huggingface, "IterableWrapper": verbs.wrap, "MapToIterConverter": verbs.to_iter,
    "SampleMultiplexer": verbs.sample_multiplexer, "Sampler": verbs.sampler,
}  # fmt: skip
"""Classes without a verb on streams."""

LEFT_OUT: dict[str, str] = {
    "AISFileLister": "AIStore speaks S3: use list_files_by_fsspec() with an s3:// URL and its endpoint",
    "AISFileLoader": "AIStore speaks S3: use open_files_by_fsspec() with an s3:// URL and its endpoint",
    "S3FileLister": "it was a compiled part of torchdata: use list_files_by_fsspec() with an s3:// URL",
    "S3FileLoader": "it was a compiled part of torchdata: use open_files_by_fsspec() with an s3:// URL",
}
"""Classes of services and libraries that are gone, and what to use instead."""


def _left_out(name: str, reason: str) -> type[DataPipe[Any]]:
    def make(*args: object, **kwargs: object) -> Any:
        raise BadPipe(f"{name} is left out of headrace: {reason}")

    make.__doc__ = f"Left out: {reason}."
    return make_class(name, make, IterDataPipe, MODULE)


def _with_pipe(make: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, for a first argument that need not be a pipe yet; a verb without `self` sees to its arguments."""
    if "self" not in inspect.signature(make).parameters:
        return make

    @functools.wraps(make)
    def verb(self: object, *args: object, **kwargs: object) -> Any:
        if is_table(self):
            self = CLASSES["MapToIterConverter"](self)
        return make(verbs.as_pipe(self), *args, **kwargs)

    return verb


def _classes() -> dict[str, type[DataPipe[Any]]]:
    made: dict[str, type[DataPipe[Any]]] = {}
    for name, verb in VERBS.items():
        make = _with_pipe(DIFFERENT.get(verb) or getattr(Pipe, verb))
        mixins = (MIXINS[name],) if name in MIXINS else ()
        made[name] = make_class(name, make, IterDataPipe, MODULE, mixins, verb)
    for name, make in SOURCES.items():
        made[name] = make_class(name, make, IterDataPipe, MODULE, (Seeded,) if name == "SampleMultiplexer" else ())
    for name, reason in LEFT_OUT.items():
        made[name] = _left_out(name, reason)
    return dict(sorted(made.items()))


CLASSES: dict[str, Any] = _classes()
for _name, _verb in VERBS.items():
    put_verb(IterDataPipe, _verb, CLASSES[_name], DIFFERENT.get(_verb) or getattr(Pipe, _verb))
for _op, _name in (
    (Batch, "Batcher"), (Map, "Mapper"), (Filter, "Filter"), (Flatmap, "FlatMapper"), (Unbatch, "UnBatcher"),
    (Shuffle, "Shuffler"), (InBatchShuffle, "InBatchShuffler"), (SetLength, "LengthSetter"), (Column, "Mapper"),
):  # fmt: skip
    CLASS_OF[_op] = CLASSES[_name]
