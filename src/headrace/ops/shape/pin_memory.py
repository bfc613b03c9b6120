"""Pin memory: the tensors of a sample in page-locked memory, from which copies to a device need not wait."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.nested import rebuilt
from headrace.op import Each


@dataclass(frozen=True, slots=True)
class PinMemory(Each[Any, Any]):
    """The same sample with its tensors pinned; runs where the training loop runs."""

    device: Any = None
    fn: Callable[..., Any] | None = None
    consumer = True

    def apply(self, sample: object) -> Any:
        return pin(sample, self.device) if self.fn is None else self.fn(sample, self.device)

    def identity(self) -> tuple[Any, ...]:
        return ("pin_memory",)


def pin(sample: object, device: object = None) -> Any:
    """The sample with everything in it that can be pinned, pinned."""
    if isinstance(sample, str | bytes | int | float):
        return sample
    pinned = getattr(sample, "pin_memory", None)
    if callable(pinned):
        return pinned() if device is None else pinned(device)
    return rebuilt(sample, lambda part: pin(part, device))
