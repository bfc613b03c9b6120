"""Copies the next batches to an accelerator while the training step works on the one before.

    for batch in ahead(loader, "cuda"): ...

    loader ──> pinned memory ──> copy on a side stream ──> `depth` batches in flight ──> the step's stream waits for one

* Order is kept. An error of the loader is raised after the batches before it; the batches behind it still come.
* Containers keep their type (dict, list, tuple, named tuple, dataclass, any nesting); arrays become tensors, or jax
  arrays; whatever has a method `to` is asked to move itself; text, numbers and the rest stay as they are.
* `state_dict()` and `mask()` belong to the batch that the training loop received last, although the loader is `depth`
  batches further; so does `mask()` of a Loader.
* No thread: what is in flight are copies, and workers run ahead by themselves. A CPU is a device like any other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from headrace.errors import BadOption, check_whole, missing
from headrace.nested import is_container, rebuilt

T = TypeVar("T")
_END: Any = object()
_NUMBERS = "biufc"
"""Kinds of numpy dtypes that a device can hold; text, dates and objects stay where they are."""


def ahead(batches: Iterable[T], device: object, depth: int = 2) -> "Ahead[T]":
    """Batches of `batches` on `device`: a torch device or its name, a jax device or sharding, or "jax"."""
    return Ahead(batches, device, depth)


def put(batch: T, device: object) -> T:
    """One batch on `device`."""
    transfer = transfer_to(device)
    return transfer.finish(*transfer.begin(batch))  # type: ignore[no-any-return]


class Ahead(Generic[T]):
    """Iterates like `batches`, epoch by epoch, with copies under way."""

    def __init__(self, batches: Iterable[T], device: object, depth: int = 2) -> None:
        check_whole("depth", depth, 1)
        self._batches = batches
        self._transfer = transfer_to(device)
        self._depth = depth
        self._iterator: AheadIterator[T] | None = None

    def __iter__(self) -> "AheadIterator[T]":
        self._iterator = AheadIterator(self._batches, self._transfer, self._depth)
        return self._iterator

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def state_dict(self) -> Any:
        """The state of the loader as of the batch that was handed over last."""
        iterator = self._iterator
        if iterator is None or iterator.ended:
            return self._batches.state_dict()  # type: ignore[attr-defined]
        return iterator.handed.state

    def mask(self) -> list[bool] | None:
        """Of the batch that was handed over last: which samples are real, where some only fill it (ends="pad")."""
        return None if self._iterator is None else self._iterator.handed.mask

    def load_state_dict(self, state: object) -> None:
        """The next `iter()` goes on where the snapshot was taken."""
        self.close()
        self._batches.load_state_dict(state)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Forget what is in flight; the loader itself stays open."""
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None

    def __enter__(self) -> "Ahead[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AheadIterator(Iterator[T]):
    """One epoch of an `Ahead`. A Ctrl-C loses no batch: the next call of `next()` goes on where it came."""

    def __init__(self, batches: Iterable[T], transfer: "Transfer", depth: int, eager: bool = False) -> None:
        self._state_of_loader: Callable[[], Any] = getattr(batches, "state_dict", _nothing)
        self._mask_of_loader: Callable[[], list[bool] | None] = getattr(batches, "mask", _nothing)
        self.handed = LastDelivered()
        self._source = iter(batches)
        self._epoch = self._source if isinstance(self._source, TakenAhead) else None
        self._transfer = transfer
        self._depth = depth
        self._pending: deque[_Pending] = deque()
        self._taken: list[Any] = []
        """A batch that was taken from the loader and whose copy is not begun yet; else empty. In the end, _END."""
        self._fills = eager
        """Whether batches are taken ahead: not before the first one was handed over, unless `eager`."""
        self.ended = False
        """`next()` has raised StopIteration."""
        self.handed.state = self._state_of_loader()
        if self._epoch is not None:
            self._epoch.handed_over = self.handed

    def __next__(self) -> T:
        # The first batch is handed over as soon as it is there, before others are taken.
        self._fill(1 + self._depth if self._fills else 1)
        if not self._pending:
            self.ended = True
            raise StopIteration
        self._fills = True
        self.handed.state, self.handed.answer, self.handed.count, begun, error = self._pending[0]
        try:
            if error is not None:
                raise error
            batch: T = self._transfer.finish(*begun)
        except Exception:
            self._pending.popleft()
            raise
        self._pending.popleft()
        return batch

    def _fill(self, most: int) -> None:
        pending = self._pending
        # Nothing is taken behind an error before it was raised: the loader may have ended with it.
        while len(pending) < most and (not pending or pending[-1].error is None):
            begun: Any = None
            error: Exception | None = None
            try:
                if not self._taken:
                    self._taken.append(next(self._source, _END))
                if self._taken[0] is _END:
                    return
                begun = self._transfer.begin(self._taken[0])
            except Exception as raised:
                error = raised
            self._taken.clear()
            count = 0 if self._epoch is None else self._epoch.handed
            pending.append(_Pending(self._state_of_loader(), self._mask_of_taken(), count, begun, error))

    def _mask_of_taken(self) -> list[bool] | BadOption | None:
        epoch = self._epoch
        if epoch is not None:
            epoch.handed_over = None
        try:
            return self._mask_of_loader()
        except BadOption as unknown:  # whoever asks for it is told
            return unknown
        finally:
            if epoch is not None:
                epoch.handed_over = self.handed  # from now on the loader's mask() is that of the caller's batch

    def close(self) -> None:
        """Forget what is in flight."""
        self._pending.clear()
        self._taken.clear()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()
        self._source, self._epoch = iter(()), None


class _Pending(NamedTuple):
    """A batch that was taken from the loader: the loader's state, mask and number of batches then, and the copy that
    was begun, or the error that came instead."""

    state: Any
    mask: list[bool] | BadOption | None
    taken: int
    begun: Any
    error: Exception | None


class LastDelivered:
    """What is known of the batch that was handed over last."""

    state: Any = None
    """Of the loader, as it was when this batch had just been taken from it."""
    answer: list[bool] | BadOption | None = None
    count = 0
    """How many batches of the epoch were handed over."""

    @property
    def mask(self) -> list[bool] | None:
        if isinstance(self.answer, BadOption):
            raise self.answer
        return self.answer


@runtime_checkable
class TakenAhead(Protocol):
    """The iterator of a loader that can be told which batch the caller has, when batches are taken from the iterator
    ahead of the caller: its `mask()` answers for that one, and it is the one that an autosave counts as delivered."""

    handed_over: LastDelivered | None
    handed: int


def _nothing() -> None:
    return None


# --- the two kinds of devices -----------------------------------------------------------------------------------------


class Transfer(Protocol):
    """Work on a batch in two halves, such as its copy to a device."""

    def begin(self, batch: object) -> tuple[Any, Any]:
        """Start the copy: the batch as it will be, and the event that says that it is there."""

    def finish(self, batch: object, event: object) -> Any:
        """The batch, ready for whatever the caller does next."""


def transfer_to(device: object) -> Transfer:
    if device == "jax" or type(device).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return JaxTransfer(None if device == "jax" else device)
    return TorchTransfer(device)


class TorchTransfer:
    """Pins, then copies on a stream of its own; the stream of the training step waits for the copy, not the host."""

    def __init__(self, device: Any, modules: Callable[[Any], Any] | None = None) -> None:
        try:
            import torch
        except ModuleNotFoundError:
            raise missing("torch", "torch") from None
        self._torch = torch
        try:
            self._device = torch.device(device)
        except (RuntimeError, TypeError) as refused:
            reason = str(refused).splitlines()[0]
            raise BadOption(
                f"device={device!r}: {reason}; write what torch.device() takes, 'jax', or a device of jax"
            ) from refused
        self._streams: Any = getattr(torch, self._device.type, None) if modules is None else modules(self._device)
        self._far = self._device.type != "cpu"
        self._side = self._stream()

    def _stream(self) -> Any:
        if not hasattr(self._streams, "Stream"):
            return None  # devices such as mps and meta: copies are ordered with everything else
        return self._streams.Stream(self._device) if self._far else self._streams.Stream()

    def begin(self, batch: object) -> tuple[Any, Any]:
        if self._side is None:
            return mapped(batch, self._copy, _moves_itself), None
        with self._streams.stream(self._side):
            moved = mapped(batch, self._copy, _moves_itself)
        return moved, self._side.record_event()

    def finish(self, batch: object, event: object) -> Any:
        stream: Any = None
        if self._side is not None:
            stream = self._streams.current_stream(self._device)
            stream.wait_event(event)
        return mapped(batch, lambda leaf: self._settle(leaf, stream), _moves_itself)

    def _copy(self, leaf: Any) -> Any:
        torch = self._torch
        if isinstance(leaf, torch.Tensor):
            near = leaf.device.type == "cpu" and leaf.layout is torch.strided
            if self._far and self._side is not None and near and not leaf.is_pinned():
                leaf = leaf.pin_memory()
            return leaf.to(self._device, non_blocking=True)
        if _is_array(leaf) and leaf.dtype.kind in _NUMBERS:
            return self._copy(torch.from_numpy(_owned(leaf)))
        return leaf

    def _settle(self, leaf: Any, stream: Any) -> Any:
        if isinstance(leaf, self._torch.Tensor):
            if self._far and stream is not None:
                # Its memory was allocated on the side stream and is now used on this one: torch must not reuse it
                # before this stream is done with it.
                leaf.record_stream(stream)
            return leaf
        # What moves itself does so only now, on the stream where it is used: `record_stream` could not reach inside it.
        return leaf.to(self._device) if _moves_itself(leaf) else leaf


class JaxTransfer:
    """`jax.device_put` returns at once and orders what follows by itself.

    With a sharding over the devices of several processes, each process has its part of a batch: the parts become one
    array.
    """

    def __init__(self, device: Any) -> None:
        try:
            import jax
        except ModuleNotFoundError:
            raise missing("jax", "jax") from None
        self._jax = jax
        self._device = device
        sharded = isinstance(device, jax.sharding.Sharding)
        self._put = self._part if sharded and not device.is_fully_addressable else self._whole

    def begin(self, batch: object) -> tuple[Any, Any]:
        return mapped(batch, self._copy), None

    def finish(self, batch: object, event: object) -> Any:
        return batch

    def _copy(self, leaf: Any) -> Any:
        if not _is_array(leaf) and hasattr(leaf, "detach"):
            leaf = leaf.detach().cpu().numpy()
        if isinstance(leaf, self._jax.Array) or (_is_array(leaf) and leaf.dtype.kind in _NUMBERS):
            return self._put(leaf)
        return leaf

    def _whole(self, leaf: object) -> Any:
        return self._jax.device_put(leaf, self._device)

    def _part(self, leaf: object) -> Any:
        import numpy as np

        return self._jax.make_array_from_process_local_data(self._device, np.asarray(leaf))


def _moves_itself(part: object) -> bool:
    return callable(getattr(part, "to", None))


def _is_array(leaf: object) -> bool:
    import numpy as np

    return isinstance(leaf, np.ndarray)


def _owned(array: Any) -> Any:
    """The array, or a copy where torch could not look into it: read-only, foreign byte order, backward strides."""
    import numpy as np

    if array.flags.writeable and array.dtype.isnative and all(stride >= 0 for stride in array.strides):
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="))


# --- nesting ----------------------------------------------------------------------------------------------------------


def mapped(batch: object, leaf: Callable[[Any], Any], whole: Callable[[Any], bool] = lambda part: False) -> Any:
    """The same containers with `leaf` applied to all in them that is no container, or of which `whole` is true."""
    if batch is None or isinstance(batch, str | bytes | int | float | complex):
        return batch
    if whole(batch):
        return leaf(batch)
    if is_container(batch):
        return rebuilt(batch, lambda part: mapped(part, leaf, whole))
    return leaf(batch)
