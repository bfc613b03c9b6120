"""The consumer's side of a batch's way: work that is begun before its result is asked for, and the move to a device.

`Prefetcher` keeps the order: an error waits for the turn of the batch it belongs to, and the batches after it still
come.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headrace.errors import missing
from headrace.nested import rebuilt

In = TypeVar("In")
Out = TypeVar("Out")


class Prefetcher(Generic[In, Out]):
    """Begins work on `depth` items of an endless stream before they are asked for.

    `pull()` gives the next item, `begin(item)` a function that gives its result, and a call of this object the next
    result. Nothing is pulled beyond an error until it has been raised. An interrupt of the user's costs no item: the
    next call goes on where this one was.
    """

    def __init__(self, pull: Callable[[], In], begin: Callable[[In], Callable[[], Out]], depth: int) -> None:
        self._pull = pull
        self._begin = begin
        self._depth = depth
        self._pulled: list[In] = []
        self._line: deque[Callable[[], Out]] = deque()
        self._failed = False

    def __call__(self) -> Out:
        while len(self._line) <= self._depth and not self._failed:
            self._line.append(self._next())
        try:
            result = self._line[0]()
        except Exception:
            self._pop()
            raise
        self._pop()
        return result

    def _next(self) -> Callable[[], Out]:
        try:
            if not self._pulled:
                self._pulled.append(self._pull())
            begun = self._begin(self._pulled[0])
        except Exception as error:
            self._failed = True
            begun = _Raise(error)
        self._pulled.clear()
        return begun

    def _pop(self) -> None:
        self._line.popleft()
        if not self._line:
            self._failed = False


class _Raise:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self) -> Any:
        raise self._error


def move(batch: object, device: object) -> Any:
    """The batch with every array and tensor in it on `device`, arrays as tensors; containers keep their type.

    Anything that has a method `to` is asked to move itself; what is neither stays as it is.
    """
    import numpy as np

    if isinstance(batch, np.ndarray):
        return _tensor(np, batch, device)
    if isinstance(batch, str | bytes | int | float | None):
        return batch
    if callable(getattr(batch, "to", None)):
        return _asked(batch, device)
    return rebuilt(batch, lambda part: move(part, device))


def _tensor(np: Any, array: Any, device: object) -> Any:
    if array.dtype.kind not in "biufc":
        return array  # text, dates, objects: there is no such tensor
    torch = _torch()
    if not array.flags.writeable or not array.dtype.isnative or any(s < 0 for s in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array).to(device, non_blocking=True)


def _asked(batch: Any, device: Any) -> Any:
    return batch.to(device, non_blocking=True) if isinstance(batch, _torch().Tensor) else batch.to(device)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise missing("torch", "torch") from None
    return torch
