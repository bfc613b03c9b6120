"""Folders of Hugging Face data sets (`save_to_disk`), read without the package: any row by its position.

    dataset_info.json      what the data set is
    state.json             its files, in order, and the columns that it shows
    data-*.arrow           Arrow streams

A sample is a row as it is stored: of pictures and sound the bytes that the files hold, which `Pipe.decode()` reads.
"""

import json
from pathlib import Path
from typing import Any

from headrace.errors import BadOption
from headrace.op import Source
from headrace.sources.memory import FromSequence
from headrace.sources.stored.format import DamagedFile
from headrace.tables.stored.data_files import DataFile
from headrace.tables.stored.files import read_footer
from headrace.tables.stored.source import from_units

STATE, SPLITS = "state.json", "dataset_dict.json"


def is_hf_folder(path: str) -> bool:
    return any((Path(path) / name).is_file() for name in (STATE, SPLITS))


def from_hf_folder(folder: str) -> Source[Any]:
    """The rows of a data set on disk."""
    if (splits := Path(folder) / SPLITS).is_file():
        names = _read(splits).get("splits", [])
        raise BadOption(
            f"{folder} holds several data sets ({', '.join(map(str, names))}): name one of them, for example "
            f"{Path(folder) / str(names[0] if names else 'train')}"
        )
    state = _read(Path(folder) / STATE)
    if state.get("_indices_data_files"):
        raise BadOption(
            f"{folder} keeps the order of its rows apart, as old versions of datasets did: load it, and write it anew "
            "with flatten_indices().save_to_disk(...)"
        )
    try:
        names = [file["filename"] for file in state["_data_files"]]
        columns = state.get("_format_columns")
        if not all(isinstance(name, str) and Path(name).name == name for name in names):
            raise ValueError("it names a file outside its folder")
        if columns is not None and not all(isinstance(name, str) for name in columns):
            raise TypeError("its columns are no names")
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"{Path(folder) / STATE} does not say which files there are ({error!r})") from None
    if not names:
        return FromSequence(())  # a data set without rows has no file
    for name in names:
        if not (Path(folder) / name).is_file():
            raise DamagedFile(f"{folder} lacks {name}, which its {STATE} names")
    found = from_units(read_footer("arrow", [DataFile(str(Path(folder) / name), {}) for name in names]))
    return found if columns is None or state.get("_output_all_columns") else found.select(columns)


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_bytes())
        if not isinstance(said, dict):
            raise ValueError("it is not an object")
    except (ValueError, FileNotFoundError) as error:
        raise DamagedFile(f"{path} does not describe a Hugging Face data set ({error})") from None
    return said
