"""Options of `headrace run` in a file, TOML or JSON by its name: read them, write them.

Keys are the long names of the options, with `-` or `_`. Unknown keys are refused with the nearest known one.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from headrace.errors import BadOption, meant
from headrace.launch.job import Job

_WRITE = {list: "a list of texts", str: "a text", int: "a whole number", bool: "true or false"}


def read(path: Path) -> dict[str, Any]:
    """The options in the file, by the names of Job's fields."""
    try:
        text = path.read_text()
    except OSError as error:
        raise BadOption(f"--import-config {path}: {error.strerror}") from None
    try:
        values = json.loads(text) if _is_json(path) else tomllib.loads(text)
    except ValueError as error:
        raise BadOption(f"--import-config {path}: {error}") from None
    if not isinstance(values, dict):
        raise BadOption(f"--import-config {path}: write one object with the options in it")
    kinds = {name: _kind(hint) for name, hint in get_type_hints(Job).items()}
    options: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in kinds:
            hint = meant(key, [known.replace("_", "-") for known in kinds])
            raise BadOption(f"--import-config {path}: there is no option {key}{hint}")
        if type(value) is not kinds[name]:  # exactly: True is an int too
            raise BadOption(f"--import-config {path}: {key} = {value!r}: write {_WRITE[kinds[name]]}")
        options[name] = tuple(map(str, value)) if isinstance(value, list) else value
    return options


def write(path: Path, job: Job, overwrite: bool) -> None:
    """Write the options that have a value."""
    values: dict[str, Any] = {}
    for field in fields(Job):
        value = getattr(job, field.name)
        if value not in (None, ()):
            values[field.name.replace("_", "-")] = list(value) if isinstance(value, tuple) else value
    text = json.dumps(values, indent=2) + "\n" if _is_json(path) else _toml(values)
    try:
        with path.open("w" if overwrite else "x") as file:
            file.write(text)
    except FileExistsError:
        raise BadOption(f"--export-config {path}: it exists; add --overwrite-config to write over it") from None
    except OSError as error:
        raise BadOption(f"--export-config {path}: {error.strerror}") from None


def _is_json(path: Path) -> bool:
    if path.suffix not in (".json", ".toml"):
        raise BadOption(f"{path}: a configuration file is named *.toml or *.json")
    return path.suffix == ".json"


def _toml(values: Mapping[str, Any]) -> str:
    # JSON's texts, numbers, booleans and flat lists are TOML's too; only DEL needs an escape that JSON does not give
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007f") for key, value in values.items()
    )


def _kind(hint: object) -> type:
    """The type that the value of an option has in a file; `hint` is the type of the field of Job."""
    if get_origin(hint) is tuple:
        return list
    kind: type = next(part for part in get_args(hint) or (hint,) if part is not type(None))
    return kind
