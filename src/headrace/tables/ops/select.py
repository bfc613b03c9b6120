"""Select and rename: some columns of rows, of dicts of arrays, of frames and tables.

Over a frame or files nothing of this runs: the verbs hand the names down to the source (see `verbs.frames`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from headrace.errors import BadPipe
from headrace.op import Each, Here, Indexed


def table_form(sample: object, verb: str) -> tuple[Any, str]:
    """A frame as a table, and the form it was in."""
    from headrace.tables.forms import form_of
    from headrace.tables.frames import table_of

    form, table = form_of(sample), table_of(sample)
    if form is None or table is None:
        raise BadPipe(f"{verb}() works on rows (dicts) and on frames, not on {type(sample).__name__}")
    return table, form


def is_row(sample: object) -> TypeGuard[dict[str, Any]]:
    """Whether a sample is one row, and not a dict of columns."""
    from headrace.tables.frames import table_of

    return isinstance(sample, dict) and table_of(sample) is None


@dataclass(frozen=True, slots=True)
class Select(Each[Any, Any]):
    """Only these columns, in this order."""

    names: tuple[str, ...]

    def apply(self, sample: object) -> Any:
        if isinstance(sample, dict):
            _check(self.names, sample)
            return {name: sample[name] for name in self.names}
        from headrace.tables.forms import deliver

        table, form = table_form(sample, "select")
        return deliver(table.select(self.names), form)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found, below = Each.index(self, inputs, here), inputs[0].take
        if found is not None and below is not None:
            found.take = lambda positions, names: below(positions, self.names if names is None else names)
        return found

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0]


@dataclass(frozen=True, slots=True)
class Rename(Each[Any, Any]):
    """Columns under new names; `new` holds pairs (old, new)."""

    new: tuple[tuple[str, str], ...]

    def apply(self, sample: object) -> Any:
        if isinstance(sample, dict):
            from headrace.tables.table import renamed

            return dict(zip(renamed(sample, dict(self.new)), sample.values(), strict=True))
        from headrace.tables.forms import deliver

        table, form = table_form(sample, "rename")
        return deliver(table.rename(dict(self.new)), form)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found, below = Each.index(self, inputs, here), inputs[0].take
        if found is not None and below is not None:
            new, old = dict(self.new), {b: a for a, b in self.new}

            def take(positions: Any, names: tuple[str, ...] | None) -> Any:
                wanted = None if names is None else tuple(old.get(n, n) for n in names)
                table = below(positions, wanted)
                return table.rename({a: b for a, b in new.items() if a in table.columns or names is None})

            found.take = take
        return found

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0]


def _check(names: tuple[str, ...], sample: Mapping[str, Any]) -> None:
    if any(name not in sample for name in names):
        from headrace.tables.table import check_names

        check_names(names, sample)
