"""However a program loads its data, one error of its own is told in few lines, which name its code and nothing else."""

import re
import textwrap
from collections.abc import Iterator

import pytest

from tests.conftest import RunScript
from tests.warm import SRC

pytest.importorskip("torch")

MOST = 16
"""Lines for one error: the traceback, the error and its notes."""
HEAD = """
import sys
import warnings

from torch.utils.data import IterableDataset

from headrace import (
    DataLoader, DataLoader2, InProcessReadingService, IterableWrapper, IterDataPipe, Loader, MapDataPipe,
    MultiProcessingReadingService, Pipe, SequenceWrapper, SequentialReadingService, SwiftLoader,
)
from headrace.replicas import DataLoader as ReplicasLoader, Options

warnings.simplefilter("ignore")


def parse(value):
    raise ValueError("a broken sample")


def load(sample):
    if sample == 5:
        return parse(sample)
    return sample


def joined(samples):
    if 5 in samples:
        return parse(samples)
    return samples


class Table:
    def __init__(self, breaks):
        self.breaks = breaks

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index >= 8:
            raise IndexError(index)
        return load(index) if self.breaks else index


class Lines(IterableDataset):
    def __init__(self, breaks):
        self.breaks = breaks

    def __iter__(self):
        for index in range(8):
            yield load(index) if self.breaks else index


class Read(IterDataPipe):
    def __init__(self, source=range(8)):
        self.source = source

    def __iter__(self):
        for index in self.source:
            yield load(index)


class Asked(MapDataPipe):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return load(index)


class Batches:
    def __init__(self, breaks):
        self.breaks = breaks

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return load(index) if self.breaks else index


def started(*arguments, **more):
    loader = SwiftLoader(*arguments, nb_consumer=1, worker_per_consumer=1, shuffle=False, validate=False, **more)
    loader.start(0)
    return loader


def told(name):
    print(f"--- {name}", file=sys.stderr)
    sys.excepthook(*sys.exc_info())
    print("--- end", file=sys.stderr)


if __name__ == "__main__":
"""
CASE = """
try:
    for _ in {loader}:
        pass
except ValueError:
    told({name!r})
"""


def cases(door: str) -> Iterator[tuple[str, str]]:
    """Names of the cases of a door, and the expressions of what is iterated."""
    pipes = {
        "dataset": "Pipe.of(Table(True)).batch(2)",
        "map": "Pipe.of(range(8)).map(load).batch(2)",
        "collate": "Pipe.of(range(8)).batch(2).collate(joined)",
        "dataset, streamed": "Pipe.of(Lines(True)).batch(2)",
        "map, streamed": "Pipe.of(Lines(False)).map(load).batch(2)",
        "collate, streamed": "Pipe.of(Lines(False)).batch(2).collate(joined)",
    }
    datapipes = {
        "dataset": "Read()",
        "dataset behind a shard point": "Read(IterableWrapper(range(8)).sharding_filter())",
        "map": "IterableWrapper(range(8)).sharding_filter().map(load)",
        "map, of a table": "SequenceWrapper(range(8)).map(load)",
        "table": "Asked()",
        "collate": "IterableWrapper(range(8)).sharding_filter().batch(2).collate(joined)",
        "map after objects": "Read(Read(IterableWrapper(range(5)))).map(str).map(parse)",
    }
    if door == "Pipe":
        yield from pipes.items()
    if door == "Loader":
        for options in ("", ", workers=2, kind='thread'", ", workers=2"):
            yield from ((f"{name}{options}", f"Loader({pipe}{options})") for name, pipe in pipes.items())
    if door == "DataLoader":
        datasets = {
            "dataset": "Table(True), batch_size=2", "collate": "Table(False), batch_size=2, collate_fn=joined",
            "dataset, streamed": "Lines(True), batch_size=2",
            "collate, streamed": "Lines(False), batch_size=2, collate_fn=joined",
            "DataPipe": "Read(IterableWrapper(range(8)).sharding_filter()), batch_size=2",
            "DataPipe, mapped": "IterableWrapper(range(8)).sharding_filter().map(load), batch_size=2",
            "DataPipe, table": "Asked(), batch_size=2",
        }  # fmt: skip
        for options in ("", ", num_workers=2", ", num_workers=2, reproducible=True"):
            yield from ((f"{name}{options}", f"DataLoader({data}{options})") for name, data in datasets.items())
    if door == "DataPipe":
        yield from datapipes.items()
        yield "asked for", "[Asked()[5]]"
        yield "asked for, mapped", "[SequenceWrapper(range(8)).map(load)[5]]"
    if door == "DataLoader2":
        for service in (
            "None", "InProcessReadingService()", "InProcessReadingService(prefetch_cnt=2)",
            "MultiProcessingReadingService(2)", "MultiProcessingReadingService(2, sharding='per-worker')",
            "SequentialReadingService(MultiProcessingReadingService(1))",
        ):  # fmt: skip
            for name, pipe in datapipes.items():
                yield f"{name}, {service}", f"DataLoader2({pipe}, reading_service={service})"
    if door == "SwiftLoader":
        yield "dataset", "started(Batches, {'breaks': True}, batch_size=2)"
        yield "collate", "started(Batches, {'breaks': False}, batch_size=2, collate_fn=joined)"
        yield (
            "dataset, dry run",
            "SwiftLoader(Batches, {'breaks': True}, batch_size=8, nb_consumer=1, worker_per_consumer=1)",
        )
    if door == "replicas":
        for mode in ("Sync", "Async", "AsyncRebatched"):
            for workers in (0, 2):
                more = f"num_workers={workers}, mode='{mode}'"
                yield f"dataset, {more}", f"ReplicasLoader(Options(), Table(True), 2, {more})"
                yield f"collate, {more}", f"ReplicasLoader(Options(), Table(False), 2, collate_fn=joined, {more})"
                yield f"dataset, streamed, {more}", f"ReplicasLoader(Options(), Lines(True), 2, {more})"


DOORS = ("Pipe", "Loader", "DataLoader", "DataPipe", "DataLoader2", "SwiftLoader", "replicas")


@pytest.mark.parametrize("door", DOORS)
def test_an_error_of_the_program_is_told_in_few_lines_of_its_own(door: str, run_script: RunScript) -> None:
    asked = dict(cases(door))
    body = "".join(CASE.format(name=name, loader=loader) for name, loader in asked.items())
    done = run_script(HEAD + textwrap.indent(body, "    "))
    told = dict(re.findall(r"^--- (.*)\n((?:.*\n)*?)--- end\n", done.stderr, re.MULTILINE))
    assert list(told) == list(asked), done.stderr
    wrong = [f"{name}\n{text}" for name, text in told.items() if problem(text)]
    assert not wrong, "\n".join(wrong)


def problem(text: str) -> str:
    """What is wrong with the output for an error; nothing if it is as it should be."""
    lines = text.splitlines()
    if len(lines) > MOST:
        return f"{len(lines)} lines"
    if f'File "{SRC}' in text:
        return "a line of the library"
    if not re.search(r'program0.py", line \d+, in parse\n +raise ValueError\("a broken sample"\)\n', text):
        return "no line of the code that failed"
    said = [line for line in lines if not line.startswith(("headrace: ", "Caught ", "This exception is thrown by"))]
    return "" if said[-1] == "ValueError: a broken sample" else "the last line is not the error"
