"""Columns: map, filter and flatmap over some fields of a sample.

A column is an index of a tuple or list, or a key of a dict. The function gets the chosen fields, one argument each.
What `map` returns replaces the field: that of `input_col`, of the first of several (the others are removed), or of
`output_col` (-1 appends). The sample itself is never changed: the result is a copy, so a source that hands out the same
objects in every epoch stays as it was.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.op import Each, Flat

Column = Any
"""One index or key, or a list or tuple of them."""


def pick(sample: Any, column: Column) -> tuple[Any, ...]:
    """The chosen fields."""
    if isinstance(column, list | tuple):
        return tuple([sample[c] for c in column])
    return (sample[column],)


def put(sample: Any, input_col: Column, output_col: Column, value: object) -> Any:
    """A copy of the sample with the new value in its place."""
    changed: Any = list(sample) if isinstance(sample, tuple) else _copied(sample)
    if output_col is None:
        if isinstance(input_col, list | tuple):
            changed[input_col[0]] = value
            for column in sorted(input_col[1:], reverse=True):
                del changed[column]
        else:
            changed[input_col] = value
    elif output_col == -1 and isinstance(changed, list):
        changed.append(value)
    else:
        changed[output_col] = value
    if not isinstance(sample, tuple):
        return changed
    named = len(getattr(sample, "_fields", ())) == len(changed)
    return type(sample)(*changed) if named else tuple(changed)


def _copied(sample: Any) -> Any:
    """A sample of the same class that holds the same; a tensor has memory of its own."""
    return sample.clone() if hasattr(sample, "clone") else copy.copy(sample)


@dataclass(frozen=True, slots=True)
class MapColumns(Each[Any, Any]):
    """Apply `fn` to some fields of every sample."""

    fn: Callable[..., Any]
    input_col: Column
    output_col: Column = None
    user = True
    verb = "map"

    def __post_init__(self) -> None:
        check_columns(self.input_col, self.output_col)
        check_arity(self.fn, self.input_col)
        if isinstance(self.output_col, list | tuple):
            object.__setattr__(self, "output_col", self.output_col[0])

    def apply(self, sample: object) -> Any:
        return put(sample, self.input_col, self.output_col, self.fn(*pick(sample, self.input_col)))


@dataclass(frozen=True, slots=True)
class FilterColumns(Flat[Any, Any]):
    """Keep the samples for which `fn` of the chosen fields (of the sample, without `input_col`) is true or false.

    Anything but a truth value is an error: a function that forgets to return would silently drop everything.
    """

    fn: Callable[..., Any]
    input_col: Column = None
    user = True
    chooses = True
    verb = "filter"

    def __post_init__(self) -> None:
        check_arity(self.fn, self.input_col)

    def spread(self, sample: object) -> Iterator[Any]:
        verdict = self.fn(sample) if self.input_col is None else self.fn(*pick(sample, self.input_col))
        kept = rows_kept(sample, verdict)
        if kept is not None:
            yield kept
        else:
            close_streams(sample)


@dataclass(frozen=True, slots=True)
class FlatmapColumns(Flat[Any, Any]):
    """Emit every element of `fn` of the chosen fields; without `fn`, of the fields or the sample itself."""

    fn: Callable[..., Iterable[Any]] | None = None
    input_col: Column = None
    user = True
    verb = "flatmap"

    def __post_init__(self) -> None:
        if self.fn is not None:
            check_arity(self.fn, self.input_col)

    def spread(self, sample: object) -> Iterator[Any]:
        yield from spread_columns(self.fn, self.input_col, sample)


def spread_columns(fn: Callable[..., Iterable[Any]] | None, input_col: Column, sample: Any) -> Iterable[Any]:
    """What `flatmap` emits for one sample."""
    if fn is not None:
        return fn(sample) if input_col is None else fn(*pick(sample, input_col))
    if input_col is None:
        return sample  # type: ignore[no-any-return]
    fields = pick(sample, input_col)
    return fields[0] if len(fields) == 1 else fields


def rows_kept(sample: Any, verdict: Any) -> Any:
    """The sample, a table's chosen rows, or None."""
    if verdict is True or verdict is False:
        return sample if verdict else None
    dtype = getattr(verdict, "dtype", None)
    if dtype is not None and str(dtype).removeprefix("torch.") in ("bool", "boolean"):
        if getattr(verdict, "ndim", 0) == 0:
            return sample if bool(verdict) else None
        kept = sample[verdict]
        return kept if len(kept) else None
    raise ValueError(
        f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(verdict)}; "
        f"let the function return True or False"
    )


def close_streams(sample: object) -> None:
    """Close the files that a dropped sample holds."""
    if not isinstance(sample, int | float | str | bytes):
        from headrace.sources.stream import StreamWrapper

        StreamWrapper.close_streams(sample)


def check_columns(input_col: Column, output_col: Column) -> None:
    if input_col is None and output_col is not None:
        raise BadOption("`output_col` must be None when `input_col` is None.")
    if isinstance(output_col, list | tuple) and len(output_col) != 1:
        raise BadOption("`output_col` must be a single-element list or tuple")


def check_arity(fn: Callable[..., Any], input_col: Column) -> None:
    """Raise unless `fn` can be called with as many arguments as there are columns."""
    wanted = len(input_col) if isinstance(input_col, list | tuple) else 1
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # builtins such as `int` do not tell
        return
    name = getattr(fn, "__name__", type(fn).__name__)
    stuck = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if stuck:
        raise BadOption(
            f"The function {name} takes {len(stuck)} non-default keyword-only parameters, which is not allowed."
        )
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in positional)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        if least > wanted:
            raise BadOption(f"The function {name} takes {least} positional parameters, but {wanted} are required.")
    elif not least <= wanted <= len(positional):
        takes = least if least > wanted else len(positional)
        raise BadOption(f"The function {name} takes {takes} positional parameters, but {wanted} are required.")
