"""Rows to columns: a batch of rows as one dict of lists."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.op import Each


@dataclass(frozen=True, slots=True)
class Rows2Columnar(Each[Any, dict[Any, list[Any]]]):
    """One list per column; `column_names` chooses keys of dict rows, or names the fields of list rows."""

    column_names: tuple[Any, ...] = ()
    verb = "rows2columnar"

    def apply(self, sample: Iterable[Any]) -> dict[Any, list[Any]]:
        columns: dict[Any, list[Any]] = defaultdict(list)
        for row in sample:
            if isinstance(row, Mapping):
                names = self.column_names or tuple(row)
                for name in names:
                    columns[name].append(row[name])
            else:
                for i, value in enumerate(row):
                    columns[self.column_names[i] if i < len(self.column_names) else i].append(value)
        return columns
