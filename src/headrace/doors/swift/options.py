"""Options of a SwiftLoader: every argument, checked in one place, with the defaults filled in."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from operator import index
from pathlib import Path
from typing import Any, ParamSpec

from headrace.doors.swift.log import LogTarget
from headrace.doors.swift.plan import ArcPlan
from headrace.errors import BadOption, meant
from headrace.tracebacks import short_errors

WHOLE: dict[str, int | None] = {
    "batch_size": 1, "nb_consumer": 1, "worker_per_consumer": 1, "data_queue_size": 1, "message_queue_size": 1,
    "nearby_shuffle": 0, "max_nb_batch_on_device": 0, "max_buffer_size": 0, "seed": None,
}  # fmt: skip
"""Whole numbers and the least that each may be; None: any."""
DEFAULTS: dict[str, Callable[[dict[str, Any]], int]] = {
    "seed": lambda values: int(time.time() * 1000),
    "nearby_shuffle": lambda values: 5 * values["batch_size"],
    "max_buffer_size": lambda values: max(2, values["data_queue_size"] // values["worker_per_consumer"]),
}
"""What None means, where that depends on the other arguments or the time."""
FLAGS = ("shuffle", "benchmark", "validate", "multithread")
FUNCTIONS = ("collate_fn", "batch_encoder", "batch_decoder")
ALIASES = {"seed_numer": "seed", "nb_worker_per_consumer": "worker_per_consumer"}
"""Other names of arguments, as the documentation of SwiftLoader has them."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    dataset_class: Callable[..., Any]
    dataset_kwargs: Mapping[str, Any]
    batch_size: int
    nb_consumer: int
    worker_per_consumer: int
    shuffle: bool
    seed: int
    data_queue_size: int
    message_queue_size: int
    collate_fn: Callable[[list[Any]], Any] | None
    logger: LogTarget | None
    batch_encoder: Callable[[Any], Any] | None
    batch_decoder: Callable[[Any], Any] | None
    nearby_shuffle: int
    benchmark: bool
    benchmark_file: str | Path | None
    validate: bool
    multithread: bool
    max_nb_batch_on_device: int
    max_buffer_size: int

    @classmethod
    def of(cls, named: Mapping[str, Any], more: Mapping[str, Any]) -> "Options":
        """Options from the arguments of a SwiftLoader, and those under other names."""
        values = dict(named)
        for alias, value in more.items():
            name = ALIASES[alias]
            if values[name] is not None:
                raise TypeError(f"SwiftLoader() got {name!r} twice: as {name!r} and under another name ({alias!r})")
            values[name] = value
        if values["worker_per_consumer"] is None:
            raise TypeError("SwiftLoader() needs the argument 'worker_per_consumer'")
        for name, least in WHOLE.items():
            if values[name] is not None or name not in DEFAULTS:
                values[name] = _whole(name, values[name], least)
        for name, default in DEFAULTS.items():
            if values[name] is None:
                values[name] = default(values)
        values["logger"] = LogTarget.of(values["logger"])
        options = cls(**values)
        options.check()
        return options

    def check(self) -> None:
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise BadOption(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in FUNCTIONS:
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise BadOption(f"{name} must be a function, not {getattr(self, name)!r}")
        if not callable(self.dataset_class):
            raise BadOption(
                f"dataset_class must be a class, not {self.dataset_class!r}: workers build the dataset from it"
            )
        if not isinstance(self.dataset_kwargs, Mapping):
            raise BadOption(f"dataset_kwargs must be a dict of keyword arguments, not {self.dataset_kwargs!r}")
        if (self.batch_encoder is None) != (self.batch_decoder is None):
            lacking = "batch_decoder" if self.batch_decoder is None else "batch_encoder"
            raise BadOption(f"batch_encoder and batch_decoder belong together: give {lacking} too, or neither")
        if self.benchmark_file is not None:
            if not isinstance(self.benchmark_file, str | Path):
                raise BadOption(f"benchmark_file must be the name of a file, not {self.benchmark_file!r}")
            if not self.benchmark:
                raise BadOption("benchmark_file is given but benchmark=False: nothing would be written to it")

    @property
    def plan(self) -> ArcPlan:
        return ArcPlan(
            self.nb_consumer, self.worker_per_consumer, self.batch_size, self.shuffle, self.nearby_shuffle, self.seed
        )

    @property
    def window(self) -> int:
        """Batches of one worker that may exist before they are delivered.

        Each takes a slot, and a worker that is ahead of the slowest one waits for it.
        """
        return min(self.data_queue_size, self.max_buffer_size + 1)

    @property
    def decode_threads(self) -> int:
        """0 without a decoder: batches are views of the memory in which they arrived, nothing is decoded."""
        return self.worker_per_consumer if self.multithread and self.batch_decoder is not None else 0

    def arguments(self) -> dict[str, Any]:
        """Every argument with the value that is in force."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def names_checked(init: Callable[P, None]) -> Callable[P, None]:
    """A decorator that refuses unknown argument names, with a suggestion.

    Python itself would only say that the argument that was meant is missing.
    """

    @short_errors
    @wraps(init)
    def checked(*args: P.args, **values: P.kwargs) -> None:
        known = [field.name for field in fields(Options)]
        for name in values:
            if name not in known and name not in ALIASES:
                hint = meant(name, [*known, *ALIASES], f"it takes {', '.join(known)}")
                raise TypeError(f"SwiftLoader() has no argument {name!r}{hint}")
        init(*args, **values)

    return checked


def _whole(name: str, value: Any, least: int | None) -> int:
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        bound = "" if least is None else f" >= {least}"
        raise BadOption(f"{name} must be a whole number{bound}, not {value!r}")
    return number
