"""A warning about what a program has written points at its line, whichever way the call took through headrace."""

import threading
import warnings

import pytest

pytest.importorskip("torch")

from headrace import (
    DataLoader2,
    IterableWrapper,
    MultiProcessingReadingService,
    Pipe,
    PrototypeMultiProcessingReadingService,
    SequenceWrapper,
)
from headrace.datapipes import iter as classes
from headrace.doors.datapipes.adapter import Shuffle

DOORS = (
    DataLoader2, IterableWrapper, MultiProcessingReadingService, Pipe, PrototypeMultiProcessingReadingService,
    SequenceWrapper, Shuffle,
)  # fmt: skip
NAMES = {**{door.__name__: door for door in DOORS}, "classes": classes, "threading": threading}
WARN = {
    "no shard point": "list(DataLoader2(pipe.shuffle(), reading_service=MultiProcessingReadingService(2)))",
    "no shard point, where only its length is asked for": (
        "len(DataLoader2(pipe.shuffle(), reading_service=MultiProcessingReadingService(2)))"
    ),
    "a table that cannot be copied": "SequenceWrapper([threading.Lock()])",
    "an endless buffer of a verb": "pipe.fork(2, buffer_size=-1)",
    "an endless buffer of a class": "classes.Forker(pipe, 2, buffer_size=-1)",
    "an endless buffer of a plain pipe": "Pipe.of([1]).demux(2, bool, buffer_size=-1)",
    "one round robin": "pipe.round_robin_demux(1)",
    "a slice of a list, with an end": "pipe.batch(2).slice([0], stop=1)",
    "no workers": "MultiProcessingReadingService(0)",
    "an old name": "PrototypeMultiProcessingReadingService(1)",
    "resume without a pause": "iter(DataLoader2(pipe)).resume()",
    "no shuffle that could be switched on": "DataLoader2(pipe, datapipe_adapter_fn=Shuffle(True))",
    "a length that is a guess": "len(pipe.filter(bool).header(3))",
    "a length for which all is read": "len(IterableWrapper([(1, 2)]).filter(bool).to_map_datapipe())",
}


@pytest.mark.parametrize("program", WARN.values(), ids=WARN)
def test_a_warning_points_at_the_line_of_the_program(program: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(f"\n\n{program}", "program.py", "exec"), {**NAMES, "pipe": IterableWrapper(range(10))})
    assert {(one.filename, one.lineno) for one in caught} == {("program.py", 3)}, [str(one.message) for one in caught]
