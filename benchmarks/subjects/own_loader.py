"""The reader that a format comes with, as a data set of torch's DataLoader."""

# mypy: disable-error-code="import-not-found, import-untyped"

import json
from contextlib import closing
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.formats import DECODERS
from benchmarks.subjects.torch_loader import Running


class Read:
    """A reader of its own in each worker; many samples at once where it has a way for that."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.length = len(OPENERS[name](path))
        self.reader: Any = None

    def __len__(self) -> int:
        return self.length

    def __getitems__(self, places: list[int]) -> list[Any]:
        if self.reader is None:
            self.reader = OPENERS[self.name](self.path)
        decode = DECODERS[self.name]
        many = MANY.get(self.name)
        found = many(self.reader, places) if many else [self.reader[place] for place in places]
        return [decode(sample) for sample in found]


class Lines:
    """What people write for themselves: the places of the lines, then one read and one decode each."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "rb")  # noqa: SIM115 - it stays open
        self.starts = [0]
        for line in self.file:
            self.starts.append(self.starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, place: int) -> Any:
        self.file.seek(self.starts[place])
        return json.loads(self.file.read(self.starts[place + 1] - self.starts[place]))


def array_records(path: str) -> Any:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource(path)


def lance(path: str) -> Any:
    import lance as package

    return Lance(package.dataset(path))


class Lance:
    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return int(self.data.count_rows())


OPENERS: dict[str, Any] = {"jsonl": Lines, "arrayrecord": array_records, "lance": lance}
MANY: dict[str, Any] = {
    "arrayrecord": lambda reader, places: reader.__getitems__(places),
    "lance": lambda reader, places: reader.data.take(places).to_pylist(),
}


class Own:
    def stored(self, name: str, path: str, *, size: int, workers: int) -> Any:
        if name == "tfrecord":
            return closing(Running(self._records(path, size, workers)))
        loader: Any = DataLoader(
            Read(name, path),  # type: ignore[arg-type]
            batch_size=size, shuffle=True, num_workers=workers, persistent_workers=True,
            multiprocessing_context="spawn" if name in ("lance", "arrayrecord") else "fork",  # as their makers advise
        )  # fmt: skip
        return closing(Running(loader))

    def _records(self, path: str, size: int, workers: int) -> Any:
        """It reads in order, with a buffer to shuffle in; workers share a file by its index."""
        from tfrecord.tools.tfrecord2idx import create_index
        from tfrecord.torch.dataset import TFRecordDataset

        create_index(path, path + ".idx")
        data = TFRecordDataset(
            path, path + ".idx", {"x": "byte", "n": "int"}, shuffle_queue_size=256, transform=DECODERS["tfrecord"]
        )
        return DataLoader(data, batch_size=size, num_workers=workers, persistent_workers=True)


SUBJECT = Own()
