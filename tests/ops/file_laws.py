"""What every op on files has to obey, checked on a small pipe.

* a second iteration, after one that stopped in the middle, gives everything again;
* the pipe travels (pickles) and means the same;
* the state after any sample, as JSON, resumes with exactly the rest;
* two worker processes deliver the same stream;
* no stream is left open, even when the reader walks away.
"""

import gc
import json
import pickle
from typing import Any

import pytest

from headrace.loader import Loader
from headrace.pipe import cursor
from headrace.pipe.graph import Pipe
from headrace.sources.stream import StreamWrapper


def plain(sample: Any) -> Any:
    """A sample with its streams read and closed."""
    if isinstance(sample, StreamWrapper):
        with sample:
            return sample.read()
    if isinstance(sample, dict):
        return {key: plain(value) for key, value in sample.items()}
    if isinstance(sample, list | tuple):
        return type(sample)(plain(part) for part in sample)
    return sample.tolist() if hasattr(sample, "tolist") else sample


def everything(samples: Any) -> list[Any]:
    return [plain(sample) for sample in samples]


def check_file_op(pipe: Pipe[Any], *, workers: bool = True) -> list[Any]:
    """Check the laws; the samples."""
    expected = everything(pipe)
    begun = iter(pipe)
    next(begun, None)
    del begun
    gc.collect()
    assert everything(pipe) == expected
    assert everything(pickle.loads(pickle.dumps(pipe))) == expected
    check_resume(pipe, expected)
    if workers:
        with Loader(pipe, workers=2) as loader:
            assert everything(loader) == expected
    gc.collect()
    assert not StreamWrapper.session_streams, f"left open: {StreamWrapper.session_streams}"
    return expected


def check_resume(pipe: Pipe[Any], expected: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for checkpoint in (1, 1000):
            patch.setattr(cursor, "CHECKPOINT", checkpoint)
            for done in range(len(expected) + 1):
                first = iter(pipe)
                for _ in range(done):
                    plain(next(first))
                state = json.loads(json.dumps(first.state()))
                rest = cursor.Opening(pipe.ordinals(), seed=0, epoch=0).open(pipe, state)
                assert everything(rest) == expected[done:], f"resumed after {done} samples"
