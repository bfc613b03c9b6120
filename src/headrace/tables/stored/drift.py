"""Drift: what happens to columns that not all files have. The user says which policy holds.

    refuse    an error that names the column and both files (the default)
    common    only the columns that all files have
    fill      all columns; where a file has none, its rows are missing

A column of another type in one of the files is always an error, and so is a name that a file has twice. An error is
only raised for a column that is asked for: `columns=` can always choose among the others.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.errors import BadOption
from headrace.secrets import shown
from headrace.tables.convert.arrow_types import enum_values
from headrace.tables.packages import pa
from headrace.tables.stored.data_files import DataFile, Value, folder_columns
from headrace.tables.stored.footers import FileSummary
from headrace.tables.table import check_names

POLICIES = ("refuse", "common", "fill")


class SharedSchema(NamedTuple):
    """The columns of several files taken together."""

    schema: Any
    constants: tuple[dict[str, Value], ...]
    """For each file, the columns that it does not hold, each with its one value: from a folder's name, or missing."""
    masked: frozenset[str]
    """Columns with missing values in some rows."""


def shared_schema(
    files: Sequence[DataFile], summaries: Sequence[FileSummary], columns: Sequence[str] | None, drift: str
) -> SharedSchema:
    """The schema of all these files under the policy; `columns`: those that will be asked for (None: all)."""
    if drift not in POLICIES:
        raise BadOption(f"drift= is one of {', '.join(map(repr, POLICIES))}, not {drift!r}")
    folders, types = folder_columns(files)
    fields: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for file, summary, folder in zip(files, summaries, folders, strict=True):
        for field in summary.schema:
            first, owner = fields.setdefault(field.name, (field, file.path))
            if field.type != first.type or enum_values(field) != enum_values(first):
                other = field.type if field.type != first.type else "an Enum of other values"
                wrong[field.name] = (
                    f"column {field.name!r} is {first.type} in {shown(owner)} and {other} in {shown(file.path)}: write "
                    f"the files with one schema, or choose other columns with columns=[...]"
                )
            if summary.schema.names.count(field.name) > 1:
                wrong[field.name] = (
                    f"{shown(file.path)} has two columns called {field.name!r}; choose others with columns=[...]"
                )
        for name in folder:
            fields.setdefault(name, (pa.field(name, pa.type_for_alias(types[name])), file.path))
            if name in summary.schema.names:
                wrong[name] = f"column {name!r} is in {shown(file.path)} and in the name of its folder; say hive=False"
    asked = None if columns is None else set(columns)
    if asked is not None:
        check_names(asked, fields)
    constants: list[dict[str, Value]] = [dict(folder) for folder in folders]
    for name, (_, owner) in list(fields.items()):
        lacking = [
            n for n, summary in enumerate(summaries) if name not in summary.schema.names and name not in folders[n]
        ]
        if lacking and drift == "fill":
            for number in lacking:
                constants[number][name] = None
        elif lacking and drift == "common" and (asked is None or name not in asked):
            del fields[name]
        elif lacking:
            wrong[name] = (
                f"column {name!r} is in {shown(owner)} but not in {shown(files[lacking[0]].path)}: choose columns that "
                f"all files have (columns=[...]), or say drift='common' or drift='fill'"
            )
    for name in fields if asked is None else columns or ():
        if name in wrong:
            raise BadOption(wrong[name])
    kept = [field for name, (field, _) in fields.items() if name not in wrong]
    masked = {name for values in constants for name, value in values.items() if value is None}
    return SharedSchema(
        pa.schema(kept), tuple(constants), frozenset(masked | {n for summary in summaries for n in summary.masked})
    )
