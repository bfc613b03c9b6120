"""The differential tests find what they were written for: each cure is taken out of a copy, and a test must fail.

A cure that nobody misses is a line to delete, or a kind of case that the generators lack.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANDOM = "tests/tables/test_differential.py::test_tables_come_out_as_their_makers_have_them"
WORKERS = "tests/tables/test_differential.py::test_tables_come_out_of_workers_as_their_makers_have_them"
EDITS = "tests/tables/test_differential.py::test_what_is_edited_in_place_is_the_users_own"
CONCAT = "tests/tables/test_differential.py::test_tables_of_unlike_types_are_never_one"
NUMBERS = "tests/tables/test_differential.py::test_a_frame_of_rows_of_numbers_holds_each_exactly_or_names_the_row"
FILTERS = "tests/tables/test_differential.py::test_a_filter_keeps_the_same_rows_of_a_stream_and_of_a_table"
FOLDERS = "tests/tables/test_files.py::test_random_folders_are_read_as_polars_reads_them"
FILES = "tests/tables/test_files.py"
COLLATE = "tests/ops/test_collate.py::test_values_are_those_of_the_samples_and_of_torch"
SHARDS = "tests/ops/test_shards_differential.py::test_shards_are_what_webdataset_reads"
SAME = "tests/ops/test_same_with_workers.py"
LEFT_OUT = "tests/ops/test_left_out.py"
AT_ONCE = """
import sys
import pytest
from hypothesis import Phase, settings
settings.register_profile("at once", phases=[Phase.explicit, Phase.generate])
settings.load_profile("at once")
sys.exit(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *sys.argv[1:]]))
"""
"""pytest without a search for a smaller case."""
BROKEN = ("NameError", "UnboundLocalError", "SyntaxError", "ImportError", "AttributeError: module")


class Cure(NamedTuple):
    name: str
    test: str
    """Which must fail without it."""
    file: str
    there: str
    """Stands in the file once."""
    without: str
    needs: str = ""
    """A package that this test needs."""


CURES = [
    Cure(
        "a category is its value",
        f"{RANDOM}[arrow]",
        "tables/convert/from_arrow.py",
        "return _decoded(array, may_miss)",
        "return array.indices.to_numpy(zero_copy_only=False)",
    ),
    # 2: masks of elements
    Cure(
        "masks on the way to Arrow",
        f"{RANDOM}[numpy]",
        "tables/convert/to_arrow.py",
        "elements = None if mask is None or mask.ndim == 1 else mask.reshape(inner)",
        "mask, elements = (None if mask is None or mask.ndim > 1 else mask), None",
    ),
    Cure(
        "masks in rows",
        f"{RANDOM}[numpy]",
        "tables/column.py",
        "return np.ma.MaskedArray(self.values[row].copy(), self.mask[row].copy())",
        "return self.values[row].copy()",
    ),
    Cure(
        "masks in records",
        f"{WORKERS}[numpy-process]",
        "tables/records.py",
        "(np.dtype(np.bool_), mask.shape[1:])",
        "(np.dtype(np.bool_), ())",
    ),
    # 3: objects
    Cure(
        "objects that Arrow changes",
        f"{RANDOM}[pandas]",
        "tables/convert/objects.py",
        "if not same(given, got):",
        "if False:",
    ),
    Cure(
        "ints of 64 bits",
        f"{RANDOM}[pandas]",
        "tables/convert/objects.py",
        "return all(v is None or -(1 << 63) <= v < 1 << 63 for v in values)",
        "return True",
    ),
    Cure(
        "ints of 64 bits in lists",
        f"{RANDOM}[pandas]",
        "tables/convert/objects.py",
        "NotImplementedError, OverflowError)",
        "NotImplementedError)",
    ),
    Cure(
        "time zones",
        f"{RANDOM}[pandas]",
        "tables/convert/objects.py",
        "return all(v is None or v.tzinfo is None for v in values)",
        "return True",
    ),
    Cure("half a pair", f"{RANDOM}[pandas]", "tables/convert/objects.py", "v.isascii() or _is_unicode(v)", "True"),
    Cure(
        "objects of several types",
        f"{RANDOM}[pandas]",
        "tables/convert/objects.py",
        "set(map(type, values.flat)) - {type(None)}",
        "set(sorted(set(map(type, values.flat)) - {type(None)}, key=str)[:1])",
    ),
    Cure(
        "objects stay objects in pandas",
        f"{RANDOM}[pandas]",
        "tables/convert/forms.py",
        "return pandas.Series(column.values, dtype=object, copy=False) if objects else column.values",
        "return column.values",
    ),
    Cure("polars' own objects", f"{RANDOM}[polars]", "tables/convert/frames.py", "    _check_polars(data)\n", ""),
    # 4: large numbers
    Cure(
        "collate of scalars",
        COLLATE,
        "ops/shape/exact.py",
        "return out if not (np.abs(out) >= LAST).any() else _large(np, samples, out, path)",
        "return out",
    ),
    Cure(
        "collate of arrays",
        COLLATE,
        "ops/shape/exact.py",
        '_check(samples, out, path, "iu", lambda array: array.dtype.kind)',
        "pass",
    ),
    Cure(
        "collate of tensors",
        COLLATE,
        "ops/shape/exact.py",
        '_check(samples, out, path, "i", lambda tensor',
        '(lambda *_: None)(samples, out, path, "i", lambda tensor',
    ),
    Cure(
        "collate of int64 with uint64",
        "tests/ops/test_collate.py",
        "ops/shape/exact.py",
        'if dtype.kind == "f" and all(array.dtype.kind in "iub" for array in samples):',
        "if False:",
    ),
    Cure(
        "rows of numbers",
        NUMBERS,
        "tables/convert/rows.py",
        "if array.dtype == object or not _holds(array[row], value):",
        "if False:",
    ),
    # 5: files
    Cure(
        "columns of some files are filled", FOLDERS, "tables/stored/drift.py", "constants[number][name] = None", "pass"
    ),
    Cure(
        "columns of some files are refused",
        FILES,
        "tables/stored/drift.py",
        "        elif lacking:\n",
        "        elif False:\n",
    ),
    Cure(
        "columns of folders",
        FOLDERS,
        "tables/stored/data_files.py",
        "_folders(inside) if hive or (hive is None and folder) else {}",
        "{}",
    ),
    Cure(
        "names with a dot",
        FILES,
        "tables/stored/footers.py",
        "chunk, name = group.column(number), field.name",
        "chunk, name = group.column(number), group.column(number).path_in_schema.partition('.')[0]",
    ),
    Cure(
        "names that are there twice",
        FILES,
        "tables/stored/drift.py",
        "if summary.schema.names.count(field.name) > 1:",
        "if False:",
    ),
    Cure(
        "notes",
        FILES,
        "tables/stored/data_files.py",
        'return part.startswith(("_", ".")) and "=" not in part',
        "return False",
    ),
    Cure("other types in other files", FILES, "tables/stored/drift.py", "if field.type != first.type or", "if"),
    # 6: shards
    Cure("endings in small letters", SHARDS, "ops/archives/webdataset.py", "found.group(2).lower()", "found.group(2)"),
    Cure("files of macOS", SHARDS, "ops/archives/webdataset.py", "[^./]+)", "[^/]*?)"),
    Cure("what a shard says about itself", SHARDS, "ops/archives/webdataset.py", "or _META.match(name)", ""),
    # 7: corners of Arrow
    Cure(
        "permuted tensors",
        f"{RANDOM}[arrow]",
        "tables/convert/from_arrow.py",
        "return found if kind.permutation is None else found.transpose(0, *[p + 1 for p in kind.permutation])",
        "return found",
    ),
    Cure("unlike types of one layout", CONCAT, "tables/merge.py", "if type_of(one) != type_of(two) or", "if"),
    Cure(
        "slices of lists in lists in structs",
        f"{RANDOM}[arrow]",
        "tables/convert/from_arrow.py",
        "return ArrowColumn(unsliced(array), field",
        "return ArrowColumn(array, field",
    ),
    Cure(
        "slices of lists in lists of stored tables",
        "tests/tables/test_stored_slices.py",
        "tables/stored/datasets.py",
        "return takeable_columns(self.dataset.data.table",
        "return (self.dataset.data.table",
        needs="datasets",
    ),
    Cure(
        "units that Arrow lacks",
        f"{RANDOM}[numpy]",
        "tables/convert/to_arrow.py",
        "if unit not in UNITS[dtype.kind] or count != 1:",
        "if False:",
    ),
    Cure(
        "lists of no elements",
        f"{RANDOM}[numpy]",
        "tables/convert/to_arrow.py",
        "return pa.Array.from_buffers(kind, rows, [valid], children=[child])",
        "return pa.FixedSizeListArray.from_arrays(child, type=kind)",
    ),
    Cure(
        "lists of no elements in polars",
        f"{RANDOM}[arrow]",
        "tables/convert/forms.py",
        "if types.is_fixed_size_list(kind) and kind.list_size == 0:",
        "if False:",
    ),
    Cure(
        "views",
        f"{RANDOM}[arrow]",
        "tables/convert/from_arrow.py",
        "_without_null_entries(takeable(array))",
        "_without_null_entries(array)",
    ),
    Cure("seconds in polars", f"{RANDOM}[numpy]", "tables/convert/forms.py", "abs(end) < (1 << 63) // 1000", "True"),
    Cure(
        "bytes with a NUL",
        f"{RANDOM}[numpy]",
        "tables/convert/to_arrow.py",
        'if values.dtype.kind in "SU":',
        "if False:",
    ),
    Cure(
        "days of 32 bits",
        f"{RANDOM}[numpy]",
        "tables/convert/to_arrow.py",
        "if np.any((values != wide)",
        "if False and np.any((values != wide)",
    ),
    # 8: edits in place
    Cure(
        "objects are copied",
        EDITS,
        "tables/column.py",
        "value if type(value) in UNCHANGING else deepcopy(value)",
        "value",
    ),
    Cure(
        "rows of arrays are copied",
        EDITS,
        "tables/column.py",
        "return value.copy() if isinstance(value, np.ndarray | np.void) else value",
        "return value",
    ),
    Cure(
        "lists are copied",
        EDITS,
        "tables/convert/from_arrow.py",
        "as_numpy(from_arrow(values)).copy()",
        "as_numpy(from_arrow(values))",
    ),
    # 9: bad records
    Cure(
        "a bad line of JSON",
        LEFT_OUT,
        "ops/text/parse_json.py",
        "skip(json.JSONDecodeError(",
        "raise (json.JSONDecodeError(",
    ),
    Cure(
        "a bad row of CSV",
        LEFT_OUT,
        "ops/text/parse_csv.py",
        "skip(_placed(error, path, lines))",
        "raise _placed(error, path, lines)",
    ),
    Cure("bad text", LEFT_OUT, "ops/text/text_lines.py", "self._skip(placed(error, self._path, self.number))", "raise"),
    # 10: with and without workers
    Cure("tensors without a storage class", SAME, "engine/wire/by_value.py", "if _is_untyped(obj):", "if False:"),
    Cure(
        "intervals",
        SAME,
        "engine/wire/by_value.py",
        'if type(obj).__name__ == "MonthDayNano":',
        "if False:",
    ),
    Cure(
        "empty files",
        SAME,
        "ops/files/read_from_stream.py",
        "if data := stream.read():",
        "if (data := stream.read()) is not None:",
    ),
    Cure(
        "carriage returns",
        SAME,
        "ops/text/text_lines.py",
        "*self._pieces, line = reversed(_RETURN.split(line))",
        "pass",
    ),
    Cure(
        "null entries of dictionaries",
        f"{RANDOM}[arrow]",
        "tables/convert/from_arrow.py",
        "or not array.dictionary.null_count:",
        "or True:",
    ),
    Cure(
        "filters where a value is missing",
        FILTERS,
        "tables/matching.py",
        "answer.fill_null(False)",
        "answer.fill_null(True)",
    ),
]


@pytest.mark.deep
@pytest.mark.parametrize("cure", [pytest.param(cure, id=cure.name) for cure in CURES])
def test_what_a_cure_was_for_is_found_without_it(cure: Cure, tmp_path: Path) -> None:
    if cure.needs and importlib.util.find_spec(cure.needs) is None:
        pytest.skip(f"{cure.needs} is not installed: it comes with scripts/test --integrations")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "src" / "headrace" / cure.file
    text = file.read_text()
    assert text.count(cure.there) == 1, "the cure has changed: say here how it is taken out"
    file.write_text(text.replace(cure.there, cure.without))
    paths = f"pythonpath={tmp_path / 'src'} {ROOT}"  # before those that pyproject.toml says
    ran = subprocess.run(
        [sys.executable, "-c", AT_ONCE, "-x", "-q", "-p", "no:cacheprovider", "-o", paths, cure.test],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
    )
    print(ran.stdout)  # what was found: pytest -rP shows it
    # A process that is ended by a signal has found it too. A patch that only breaks the code shows nothing.
    assert ran.returncode < 0 or (ran.returncode == 1 and "failed" in ran.stdout), "nobody missed it"
    assert not any(f"E   {error}" in ran.stdout for error in BROKEN), "the patch is wrong: say otherwise how it is done"
