"""Verbs whose arguments DataPipes name differently from Pipe, and the sources that are classes only."""

import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.doors.datapipes.nodes import TorchPipe, is_pipe, is_table
from headrace.doors.torch.datapipes import check_pinning, default_collate, tensors
from headrace.errors import BadOption
from headrace.ops.branch.concat import Concat
from headrace.ops.branch.fork import Column
from headrace.ops.branch.mux import Mux, MuxLongest, SampleMux
from headrace.ops.branch.zip import Zip, ZipLongest
from headrace.ops.counts import BadCount, positive
from headrace.ops.order.pick import Pick
from headrace.ops.shape.batch import Unbatch
from headrace.ops.shape.bounded import BoundedBatch, BoundedConcat, BoundedZip
from headrace.ops.shape.map import Map
from headrace.ops.shape.same import Same
from headrace.pipe.graph import Pipe
from headrace.pipe.verbs.groups import BATCH_SIZE
from headrace.pipe.verbs.growing import function, keywords
from headrace.sources.huggingface import HuggingFace
from headrace.sources.table import CachedTable
from headrace.sources.wrapped import NOT_COPIED, Sampled, WrappedIterable, WrappedSequence, has_positions
from headrace.tables.ops.columns import FilterColumns, check_arity
from headrace.tracebacks import users_line

AnyPipe = Pipe[Any]


def as_pipe(given: Any) -> AnyPipe:
    """A pipe as it is; anything else that can be iterated, wrapped."""
    if isinstance(given, Pipe):
        return given
    return TorchPipe(given) if is_pipe(given) else wrap(given, deepcopy=False)


# --- sources ----------------------------------------------------------------------------------------------------------


def wrap(iterable: Iterable[Any], deepcopy: bool = True) -> AnyPipe:
    """The samples of anything that can be iterated, or of a function that returns it."""
    if is_pipe(iterable):
        return Pipe(Same(), as_pipe(iterable))
    if has_positions(iterable):
        return Pipe(WrappedSequence(iterable, deepcopy))
    if not hasattr(iterable, "__iter__") and not callable(iterable):
        raise BadOption(
            f"IterableWrapper needs something that can be iterated, or a function that returns it; "
            f"{type(iterable).__name__} is neither"
        )
    return Pipe(WrappedIterable(iterable, deepcopy))


def wrap_table(sequence: object, deepcopy: bool = True) -> AnyPipe:
    """A sequence or a mapping."""
    if deepcopy:
        try:
            sequence = copy.deepcopy(sequence)
        except Exception:
            warnings.warn(NOT_COPIED, stacklevel=users_line())
    return Pipe(WrappedSequence(sequence, deepcopy=False))


def list_files(root: Any = ".", masks: Any = "", **options: Any) -> AnyPipe:
    """The files of a folder, of several, or of the folders that a pipe names."""
    return Pipe.list_files(_roots(root), masks, **options)


def list_files_by_fsspec(root: Any, masks: Any = "", **options: Any) -> AnyPipe:
    """The same for any file system."""
    return Pipe.list_files_by_fsspec(_roots(root), masks, **options)


# iopath is archived. What its default path manager reads (local files, http, s3, ...) fsspec reads.


def list_files_by_iopath(
    root: object, masks: object = "", *, pathmgr: object = None, handler: object = None
) -> AnyPipe:
    """The files of a folder, of several, or of the folders that a pipe names, by fsspec."""
    _no_path_manager(pathmgr, handler)
    return list_files_by_fsspec(root, masks)


def open_files_by_iopath(self: AnyPipe, mode: str = "r", pathmgr: object = None, handler: object = None) -> AnyPipe:
    """Each path as (path, stream), by fsspec."""
    _no_path_manager(pathmgr, handler)
    return Pipe.open_files_by_fsspec(self, mode)


def save_by_iopath(
    self: AnyPipe,
    mode: str = "w",
    filepath_fn: Callable[[Any], str] | None = None,
    *,
    pathmgr: object = None,
    handler: object = None,
) -> AnyPipe:
    """Each (meta, data) written to the path `filepath_fn(meta)`, which is handed on, by fsspec."""
    _no_path_manager(pathmgr, handler)
    return Pipe.save_by_fsspec(self, mode, filepath_fn)


def _no_path_manager(pathmgr: object, handler: object) -> None:
    if pathmgr is not None or handler is not None:
        raise BadOption(
            "pathmgr and handler belong to iopath, which is archived; paths are read by fsspec: register a file system "
            "there, and use its URLs"
        )


def _roots(root: object) -> AnyPipe:
    return as_pipe([root] if isinstance(root, str) or hasattr(root, "__fspath__") else root)


def sample_multiplexer(pipes_to_weights_dict: Mapping[Any, float], seed: int | None = None) -> AnyPipe:
    """Samples of several pipes, each next one from a pipe chosen by weight."""
    if not pipes_to_weights_dict:
        raise BadOption("Empty dictionary passed to SampleMultiplexerDataPipe")
    for weight in pipes_to_weights_dict.values():
        if not weight > 0:
            raise BadOption(f"Expecting a positive and non-zero weight, got {weight}")
    pipes = [as_pipe(p) for p in pipes_to_weights_dict]
    return Pipe(SampleMux(tuple(float(w) for w in pipes_to_weights_dict.values()), seed), *pipes)


def sampler(
    datapipe: Any,
    sampler: Callable[..., Any] | None = None,
    sampler_args: Sequence[Any] | None = None,
    sampler_kwargs: Mapping[str, Any] | None = None,
) -> AnyPipe:
    """The numbers that a sampler (0, 1, 2, ... if none is given) draws for a pipe of known length."""
    try:
        len(datapipe)
    except TypeError:
        raise BadCount("Sampler class requires input datapipe implemented `__len__`") from None
    return Pipe(Sampled(datapipe, sampler, tuple(sampler_args or ()), keywords(sampler_kwargs)))


def huggingface(dataset: str, **config_kwargs: object) -> AnyPipe:
    """A data set of the Hugging Face hub."""
    return Pipe(HuggingFace(dataset, keywords(config_kwargs)))


# --- streams ----------------------------------------------------------------------------------------------------------


def batch(
    self: AnyPipe,
    batch_size: int,
    drop_last: bool = False,
    wrapper_class: Callable[[list[Any]], Any] | None = None,
    **more: object,
) -> AnyPipe:
    """Lists of `batch_size` samples, or what `wrapper_class` makes of them."""
    positive(batch_size, BATCH_SIZE, BadCount)
    batches: AnyPipe = Pipe.batch(self, batch_size, drop_last, **more)
    return batches if wrapper_class in (None, list) else Pipe(Map(function(wrapper_class)), batches)


def unbatch(self: AnyPipe, unbatch_level: int = 1) -> AnyPipe:
    """The elements of lists, `unbatch_level` levels deep; -1: all levels."""
    return Pipe(Unbatch(unbatch_level), self)


def collate(
    self: AnyPipe, conversion: Callable[[Any], Any] | None = None, collate_fn: Callable[[Any], Any] | None = None
) -> AnyPipe:
    """Each list of samples as one sample: torch tensors where torch is installed, numpy arrays otherwise."""
    if isinstance(conversion, Mapping):
        raise BadOption("collate(conversion=) takes a function; for columns of a table use rows2columnar() or parquet")
    chosen = collate_fn if collate_fn is not None else conversion
    if chosen is None and _has_torch():
        chosen = default_collate
    return Pipe.collate(self) if chosen is None else Pipe.collate(self, function(chosen))


def shuffle(self: AnyPipe, *, buffer_size: int | None = None, unbatch_level: int = 0, **more: Any) -> AnyPipe:
    """Another order each epoch: of everything where there is random access, else through a buffer (10,000)."""
    if buffer_size is not None:
        positive(buffer_size, "buffer_size should be larger than 0", BadCount)
    source = self if unbatch_level == 0 else unbatch(self, unbatch_level)
    return Pipe.shuffle(source, buffer_size=buffer_size, **more)


def enumerate_(self: AnyPipe, starting_index: int = 0) -> AnyPipe:
    """Pairs (number, sample)."""
    return Pipe.enumerate(self, starting_index)


def map_(self: AnyPipe, fn: Callable[..., Any], input_col: object = None, output_col: object = None) -> AnyPipe:
    """`fn` applied to every sample, or to some of its fields."""
    check_arity(function(fn), input_col)
    return Pipe.map(self, function(fn), input_col, output_col)


def flatmap(self: AnyPipe, fn: Callable[..., Iterable[Any]] | None = None, input_col: object = None) -> AnyPipe:
    """Every element of `fn` of the sample, or of some of its fields."""
    if fn is not None:
        check_arity(function(fn), input_col)
    return Pipe.flatmap(self, None if fn is None else function(fn), input_col)


def filter_(self: AnyPipe, filter_fn: Callable[..., bool], input_col: object = None) -> AnyPipe:
    """Only the samples for which `filter_fn` is True."""
    return Pipe(FilterColumns(function(filter_fn), input_col), self)


def zip_(*datapipes: object) -> AnyPipe:
    """Tuples of one sample from each pipe."""
    return Pipe(Zip(), *_pipes(datapipes, "All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`."))


def zip_longest(*datapipes: object, fill_value: object = None) -> AnyPipe:
    """Tuples of one sample from each pipe, until all have ended."""
    text = "All inputs are required to be `IterDataPipe` for `ZipperLongestIterDataPipe`."
    return Pipe(ZipLongest(fill_value), *_pipes(datapipes, text))


def concat(*datapipes: object) -> AnyPipe:
    """All of the first pipe, then all of the next."""
    return Pipe(Concat(), *_pipes(datapipes))


def mux(*datapipes: object) -> AnyPipe:
    """One sample from each pipe in turn, in whole rounds."""
    return Pipe(Mux(), *_pipes(datapipes))


def mux_longest(*datapipes: object) -> AnyPipe:
    """One sample from each pipe in turn, until all have ended."""
    return Pipe(MuxLongest(), *_pipes(datapipes))


def to_iter(datapipe: object, indices: Sequence[Any] | None = None) -> AnyPipe:
    """The samples of a table one after the other."""
    if indices is None:
        return Pipe(Same(), as_pipe(datapipe))
    return Pipe(Pick(indices if isinstance(indices, Sequence) else list(indices)), as_pipe(datapipe))


def load_from_tfrecord(self: AnyPipe, spec: object = None, length: int = -1) -> AnyPipe:
    """Each example of each TFRecord file as a dict: torch tensors where torch is installed, numpy arrays otherwise."""
    examples = Pipe.load_from_tfrecord(self, spec, length)
    return Pipe(Map(tensors), examples) if _has_torch() else examples


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def pin_memory(self: AnyPipe, device: object = None, pin_memory_fn: Callable[..., Any] | None = None) -> AnyPipe:
    """Tensors in page-locked memory."""
    check_pinning()
    return Pipe.pin_memory(self, device, pin_memory_fn)


def load_parquet_as_df(
    self: AnyPipe,
    dtype: object = None,
    columns: Sequence[str] | None = None,
    device: str = "",
    use_threads: bool = False,
) -> AnyPipe:
    """Each row group of each parquet file as a pandas DataFrame."""
    _only_pandas(dtype, device)
    return self.load_parquet(columns, form="pandas", use_threads=use_threads)


def dataframe(
    self: AnyPipe,
    dataframe_size: int = 1000,
    dtype: object = None,
    dtype_generator: object = None,
    columns: Sequence[str] | None = None,
    device: str = "",
) -> AnyPipe:
    """Every `dataframe_size` rows as one pandas DataFrame."""
    _only_pandas(dtype or dtype_generator, device)
    positive(dataframe_size, BATCH_SIZE, BadCount)
    return Pipe.dataframe(self, dataframe_size, as_="pandas", columns=None if columns is None else list(columns))


def _only_pandas(dtype: object, device: str) -> None:
    if dtype is not None or device not in ("", "cpu"):
        raise BadOption("dtype and device belong to torcharrow, which is archived; frames are pandas: use .map(astype)")


# --- tables -----------------------------------------------------------------------------------------------------------


def batch_table(datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: object = None) -> AnyPipe:
    positive(batch_size, BATCH_SIZE, BadCount)
    batches = Pipe(BoundedBatch(batch_size, drop_last), datapipe)
    return batches if wrapper_class in (None, list) else Pipe(Map(function(wrapper_class)), batches)


def concat_tables(*datapipes: object) -> AnyPipe:
    return Pipe(BoundedConcat(), *_tables(datapipes))


def zip_tables(*datapipes: object) -> AnyPipe:
    return Pipe(BoundedZip(), *_tables(datapipes))


def map_table(datapipe: Any, fn: Callable[[Any], Any] | None = None) -> AnyPipe:
    return Pipe(Same() if fn is None else Map(function(fn)), datapipe)


def cache_table(source_dp: object) -> AnyPipe:
    return Pipe(CachedTable(source_dp))


def shuffle_table(datapipe: object, *, indices: Sequence[Any] | None = None) -> AnyPipe:
    return Pipe.shuffle(to_iter(datapipe, indices))


def unzip_table(
    source_datapipe: Any, sequence_length: int, columns_to_skip: Sequence[int] | None = None
) -> list[AnyPipe]:
    if sequence_length < 1:
        raise BadOption(f"Expected `sequence_length` larger than 0, but {sequence_length} is found")
    kept = [i for i in range(sequence_length) if i not in (columns_to_skip or ())]
    if not kept:
        raise RuntimeError("All instances are being filtered out in UnZipperMapDataPipe: keep at least one column")
    return [Pipe(Column(i), source_datapipe) for i in kept]


def _pipes(given: tuple[Any, ...], text: str = "Expected all inputs to be `IterDataPipe`") -> list[AnyPipe]:
    if not given:
        raise BadOption("Expected at least one DataPipe, but got nothing")
    if not all(is_pipe(p) and not is_table(p) for p in given):
        raise TypeError(f"{text} Wrap other data in IterableWrapper.")
    return [as_pipe(p) for p in given]


def _tables(given: tuple[Any, ...]) -> list[AnyPipe]:
    if not given:
        raise BadOption("Expected at least one DataPipe, but got nothing")
    if not all(is_table(p) for p in given):
        raise TypeError("Expected all inputs to be `MapDataPipe`")
    for table in given:
        try:
            len(table)
        except TypeError:
            raise TypeError("Expected all inputs to be `Sized`") from None
    return list(given)
