"""Verbs that say what was probably meant when they are called wrongly, and whose errors stop at the verb."""

import inspect
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from headrace.errors import meant
from headrace.tracebacks import short_errors, shorten

FOREIGN_VERBS = {
    "apply": "map(fn)",
    "as_numpy_iterator": "Loader(pipe): its batches are numpy already",
    "cache": "in_memory_cache(), or on_disk_cache() of files",
    "compose": "map(), one after the other",
    "decode_fn": "decode() or map(fn)",
    "from_tensor_slices": "Pipe.of({'x': x, 'y': y}), of arrays of one length",
    "interleave": "mix(), or round_robin_demux() and mux()",
    "join": "Pipe.of(frame), of frames that polars, duckdb or pyarrow has joined",
    "map_with_index": "enumerate().map(fn)",
    "merge": "Pipe.of(frame), of frames that polars, duckdb or pyarrow has joined",
    "mp_prefetch": "Loader(pipe, workers=4, prefetch=2)",
    "mp_prefetch_to_iter_dataset": "Loader(pipe, workers=4, prefetch=2)",
    "padded_batch": "batch(n).collate(pad=0)",
    "random_map": "map(fn), with headrace.rng() inside fn",
    "random_map_with_index": "enumerate().map(fn), with headrace.rng() inside fn",
    "shard": "Loader(pipe, world=World.detect()): ranks share the samples by themselves",
    "skip": "a slice of the data: Pipe.of(data[n:])",
    "source": "Pipe.of(source)",
    "take": "header(n)",
    "to_iter_dataset": "Loader(pipe, workers=4)",
    "with_options": "options of the Loader",
}
"""Verbs of other libraries (Grain, tf.data, TorchData, WebDataset, pandas), and what one writes here instead."""
FOREIGN_OPTIONS = {
    "reshuffle_each_iteration": "nothing: every epoch has an order of its own",
    "seed": "Loader(pipe, seed=7): all random choices of a pipe follow from one number",
}
"""Their options."""
P = ParamSpec("P")
R = TypeVar("R")


class HelpfulType(type):
    """The type of a class that says what was probably meant when it is asked for what it does not have."""

    if not TYPE_CHECKING:

        @short_errors
        def __getattr__(cls, name: str) -> NoReturn:
            raise unknown_verb(cls, name, cls.__name__)


def unknown_verb(kind: type, name: str, owner: str) -> AttributeError:
    """What to raise about a verb that is not there.

    It has no `obj`: of that Python would look for a name that was meant, and say it a second time.
    """
    hint = ""
    if not name.startswith("_"):
        known = [verb for verb in dir(kind) if not verb.startswith("_")]
        hint = _instead(name, FOREIGN_VERBS) or meant(name, known)
    return AttributeError(f"{owner} has no verb {name!r}{hint}", name=name, obj=None)


def _instead(word: str, table: dict[str, str]) -> str:
    """What to write in the place of a word of another library; nothing if it is not known."""
    return f"; here one writes {table[word]}" if word in table else ""


def make_helpful(kinds: Iterable[type]) -> None:
    """Wrap all public methods of these classes in `helpful`."""
    for kind in kinds:
        for name, value in list(vars(kind).items()):
            if name.startswith("_"):
                continue
            if isinstance(value, staticmethod):
                setattr(kind, name, staticmethod(helpful(value.__func__)))
            elif inspect.isfunction(value):
                setattr(kind, name, helpful(value))


def helpful(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, whose errors say what was probably meant and point at the user's line."""

    @wraps(verb)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(*args, **kwargs)
        except Exception as error:
            entered = error.__traceback__ is None or error.__traceback__.tb_next is not None
            if isinstance(error, TypeError) and not entered:
                # Not the class that happens to hold the verb, nor what keeps its name apart from one of Python's.
                said = re.sub(r"^(?:\w+\.)?(\w+?)_?(?=\(\))", r"\1", str(error))
                said = re.sub(r"\. Did you mean .*$", "", said)  # (Python 3.13 and later guess a name too.)
                error.args = (f"{said}{_hint(verb, said)}",)
            shorten(error)
            raise

    return called


def _hint(verb: Callable[P, R], said: str) -> str:
    """The end of a message about arguments that a verb does not take."""
    parameters = [p for p in inspect.signature(verb).parameters.values() if p.name not in ("self", "cls")]
    names = [p.name for p in parameters]
    if unknown := re.search(r"unexpected keyword argument '(\w+)'", said):
        if (foreign := _instead(unknown[1], FOREIGN_OPTIONS)) and unknown[1] not in names:
            return foreign
        return meant(unknown[1], names, f"{verb.__name__}() takes {', '.join(names) or 'nothing'}")
    by_name = [f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY]
    if by_name and re.search(r"takes (from )?\d.* but \d+ were given", said):
        return f"; give its options by name: {', '.join(by_name)}"
    return ""
