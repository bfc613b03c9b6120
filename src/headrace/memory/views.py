"""What `share()` returns: containers that look like the original and decode an element when it is asked for.

A view is a column and a range of its rows: nothing else is stored, so a view of two million records is as small as a
view of two. It is a Sequence or a Mapping, equal to the container it was made from, and cannot be changed; `copy.copy`
and `copy.deepcopy` give plain containers, which can.

Pickled, a view is an address of about 150 bytes.
"""

from __future__ import annotations

import copy
import reprlib
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import islice
from operator import eq
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

if TYPE_CHECKING:
    from headrace.memory.layout import FrozenColumn, Maps, Records


def _frozen(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(
        f"this {type(self).__name__} is frozen: headrace.share() makes read-only data. "
        "copy.deepcopy(it) is a plain copy that can be changed"
    )


class _View:
    __slots__ = ()

    __setitem__ = __delitem__ = _frozen

    def __repr__(self) -> str:
        return _short.repr(self)


class _SharedSequence(_View, Sequence[Any]):
    __slots__ = ("_column", "_rows")
    _plain: type[list[Any]] | type[tuple[Any, ...]]

    def __init__(self, column: FrozenColumn, rows: range) -> None:
        self._column = column
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        try:
            row = self._rows[index]
        except IndexError:
            raise IndexError(f"index {index} is outside of a {type(self).__name__} of {len(self)}") from None
        return type(self)(self._column, row) if isinstance(row, range) else self._column.read(row)

    def __iter__(self) -> Iterator[Any]:
        return map(self._column.read, self._rows)

    def __reversed__(self) -> Iterator[Any]:
        return map(self._column.read, reversed(self._rows))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (type(self), self._plain)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __copy__(self) -> Sequence[Any]:
        return self._plain(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Sequence[Any]:
        return copy.deepcopy(self._plain(self), memo)

    def __reduce__(self) -> Any:
        return self._column.pickled(type(self), self._rows)


class SharedList(_SharedSequence):
    """A frozen list. A slice of it is a SharedList over the same memory."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    _plain = list

    copy = _SharedSequence.__copy__
    append = clear = extend = pop = insert = remove = sort = reverse = __iadd__ = __imul__ = _frozen


class SharedTuple(_SharedSequence):
    """A frozen tuple that is too long to be made anew at every access."""

    __slots__ = ()
    _plain = tuple

    def __hash__(self) -> int:
        return hash(tuple(self))


class SharedDict(_View, Mapping[Any, Any]):
    """A frozen dict: keys in their order, a value is found without decoding the others."""

    __slots__ = ("_column", "_row")

    def __init__(self, column: Records | Maps, row: int) -> None:
        self._column = column
        self._row = row

    def __len__(self) -> int:
        return self._column.size(self._row)

    def __getitem__(self, key: object) -> Any:
        return self._column.find(self._row, key)

    def __iter__(self) -> Iterator[Any]:
        return self._column.keys(self._row)

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def __copy__(self) -> dict[Any, Any]:
        return dict(self.items())

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(dict(self.items()), memo)

    def __reduce__(self) -> Any:
        return self._column.pickled(type(self), self._row)

    copy = __copy__
    clear = pop = popitem = setdefault = update = __ior__ = _frozen


class _Items(ItemsView[Any, Any]):
    _mapping: SharedDict

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        column, row = self._mapping._column, self._mapping._row
        return zip(column.keys(row), column.values(row), strict=True)


class _Values(ValuesView[Any]):
    _mapping: SharedDict

    def __iter__(self) -> Iterator[Any]:
        return self._mapping._column.values(self._mapping._row)


class _Short(reprlib.Repr):
    """Six entries a container and a few levels: the repr of two million records is one line."""

    def repr_SharedList(self, view: SharedList, level: int) -> str:
        return f"SharedList([{self._entries(view, len(view), level)}])"

    def repr_SharedTuple(self, view: SharedTuple, level: int) -> str:
        return f"SharedTuple(({self._entries(view, len(view), level)}))"

    def repr_SharedDict(self, view: SharedDict, level: int) -> str:
        return f"SharedDict({{{self._entries(view.items(), len(view), level, pairs=True)}}})"

    def _entries(self, entries: Iterable[Any], total: int, level: int, pairs: bool = False) -> str:
        first = list(islice(entries, 6)) if level > 0 else []
        below = level - 1
        if pairs:
            shown = [f"{self.repr1(key, below)}: {self.repr1(value, below)}" for key, value in first]
        else:
            shown = [self.repr1(value, below) for value in first]
        if len(first) < total:
            shown.append(f"... {total - len(first)} more")
        return ", ".join(shown)


_short = _Short()
