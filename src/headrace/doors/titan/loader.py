"""torchtitan: a `BaseDataLoader` over any pipe of packed rows.

    from headrace.doors.titan.loader import titan_dataloader

    def rows(tokenizer, length):                       # what torchtitan knows when it builds the loader
        return Pipe.tokens("corpus").pack(length, overlap=1).shuffle()

    HeadraceDataLoader = titan_dataloader(rows)
    config.dataloader = HeadraceDataLoader.Config(workers=4)

Data may be finite on any number of ranks (all make the same number of steps), work is done in processes, and a
checkpoint loads at another data-parallel degree: the state is that of the whole job, and the same on every rank.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from headrace.errors import BadOption, missing
from headrace.loader import Loader
from headrace.ops.text.labels import shifted
from headrace.pipe.graph import Pipe
from headrace.plan.world import World

HOMES = ("torchtitan.components.data.loader", "torchtitan.components.dataloader")
"""Where torchtitan keeps its abstract class: since it is built on Grain, and up to 0.3."""
Rows = Callable[[Any, int], Pipe[dict[str, Any]]]


class TitanBatches:
    """All that torchtitan asks of a loader: batches (input and positions, labels), a state, an end."""

    def __init__(
        self, pipe: Pipe[dict[str, Any]], *, rows: int, dp_rank: int, dp_world_size: int, seed: int, workers: int,
        length: int, repeat: bool,
    ) -> None:  # fmt: skip
        self._length = length
        self._repeat = repeat
        self._loader = Loader(
            pipe.map(shifted).batch(rows).collate(), seed=seed, workers=workers, kind="process" if workers else None,
            world=World(rank=dp_rank, ranks=dp_world_size), ends="drop",
        )  # fmt: skip

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        import torch

        empty = 0
        while empty < 2:  # (the first epoch may be one of which everything was delivered before)
            empty += 1
            for batch in self._loader:
                empty = 0
                tensors = {name: torch.as_tensor(batch[name][:, : self._length]) for name in batch}
                labels = tensors.pop("labels")
                yield tensors, labels
            if not self._repeat:
                return
        raise BadOption(
            "repeat=True repeats nothing: an epoch has fewer rows than one step of all ranks needs. Give it more data, "
            "or fewer rows a step"
        )

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self._loader.load_state_dict(state_dict)

    def close(self) -> None:
        self._loader.close()


def titan_dataloader(rows: Rows) -> Any:
    """A class of torchtitan's loaders; `rows(tokenizer, length)` gives the pipe of padded rows, not yet batched."""
    base: Any = _base()

    class HeadraceDataLoader(TitanBatches, base):  # type: ignore[misc]
        @dataclass(kw_only=True, slots=True)
        class Config(base.Config):  # type: ignore[misc]
            workers: int = 0
            seed: int = 42
            repeat: bool = False

        def __init__(
            self, config: Any, *, dp_world_size: int, dp_rank: int, tokenizer: Any, seq_len: int | None = None,
            local_batch_size: int | None = None, max_context_length: int | None = None,
            num_tokens_per_batch: int | None = None, **_: Any,
        ) -> None:  # fmt: skip
            length = max_context_length or seq_len
            if not length:
                raise BadOption("torchtitan says neither max_context_length nor seq_len: this version is not known")
            many = local_batch_size or max(1, (num_tokens_per_batch or length) // length)
            TitanBatches.__init__(
                self, rows(tokenizer, length), rows=many, dp_rank=dp_rank, dp_world_size=dp_world_size,
                seed=config.seed, workers=config.workers, length=length, repeat=config.repeat,
            )  # fmt: skip

    return HeadraceDataLoader


def _base() -> Any:
    for home in HOMES:
        try:
            return import_module(home).BaseDataLoader
        except ModuleNotFoundError as error:
            if not home.startswith(f"{error.name}") and not (error.name or "").startswith("torchtitan"):
                raise
    raise missing("torch", "torchtitan")
