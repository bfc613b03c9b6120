"""Options of a SwiftLoader: every argument, checked in one place, with the defaults filled in."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from operator import index
from pathlib import Path
from typing import Any, ParamSpec

from headrace.doors.swift.log import LogTo
from headrace.doors.swift.plan import ArcPlan
from headrace.errors import BadOption, meant

WHOLE = {
    "batch_size": 1, "nb_consumer": 1, "worker_per_consumer": 1, "data_queue_size": 1, "message_queue_size": 1,
    "nearby_shuffle": 0, "max_nb_batch_on_device": 0, "max_buffer_size": 0,
}  # fmt: skip
"""Whole numbers and the least that each may be."""
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
    shuffle: bool = True
    seed: int
    data_queue_size: int = 10
    message_queue_size: int = 10
    collate_fn: Callable[[list[Any]], Any] | None = None
    logger: LogTo | None = None
    batch_encoder: Callable[[Any], Any] | None = None
    batch_decoder: Callable[[Any], Any] | None = None
    nearby_shuffle: int
    benchmark: bool = True
    benchmark_file: str | Path | None = None
    validate: bool = True
    multithread: bool = True
    max_nb_batch_on_device: int = 1
    max_buffer_size: int

    @classmethod
    def of(cls, **given: Any) -> "Options":
        """Options from the arguments as they were given; what was left out is not among them."""
        given = _named(given)
        for name in ("dataset_class", "dataset_kwargs", "batch_size", "nb_consumer", "worker_per_consumer"):
            if name not in given:
                raise TypeError(f"SwiftLoader() needs the argument {name!r}")
        for name in ("seed", "nearby_shuffle", "max_buffer_size"):
            if given.get(name) is None:
                given.pop(name, None)
        for name, least in WHOLE.items():
            if name in given:
                given[name] = _whole(name, given[name], least)
        given.setdefault("seed", int(time.time() * 1000))
        given["seed"] = _whole("seed", given["seed"], None)
        given.setdefault("nearby_shuffle", 5 * given["batch_size"])
        given.setdefault("max_buffer_size", max(2, given.get("data_queue_size", 10) // given["worker_per_consumer"]))
        given["logger"] = LogTo.of(given.get("logger"))
        return cls(**given)

    def __post_init__(self) -> None:
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
        """Without a decoder there is nothing to do for them: batches are views of the memory they arrived in."""
        return self.worker_per_consumer if self.multithread and self.batch_decoder is not None else 0

    def shown(self) -> dict[str, Any]:
        """Every argument with the value that is in force."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def names_checked(init: Callable[P, None]) -> Callable[P, None]:
    """`init`, with unknown names refused before Python says that the argument they were meant for is missing."""

    @wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        known = [field.name for field in fields(Options)]
        for name in given:
            if name not in known and name not in ALIASES:
                hint = meant(name, [*known, *ALIASES], f"it takes {', '.join(known)}")
                raise TypeError(f"SwiftLoader() has no argument {name!r}{hint}")
        init(*args, **given)

    return checked


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments under their own names."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        proper = ALIASES.get(name, name)
        if proper in found:
            raise TypeError(
                f"SwiftLoader() got {proper!r} twice: as {proper!r} and under another name ({_others(proper)})"
            )
        found[proper] = value
    return found


def _others(proper: str) -> str:
    return ", ".join(repr(alias) for alias, name in ALIASES.items() if name == proper)


def _whole(name: str, value: Any, least: int | None) -> int:
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        bound = "" if least is None else f" >= {least}"
        raise BadOption(f"{name} must be a whole number{bound}, not {value!r}")
    return number
