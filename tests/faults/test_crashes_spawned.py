"""The crash table for workers that are new interpreters: one case of each kind (all of them: scripts/test --deep)."""

from typing import Any

import pytest

from headrace.errors import PoisonSample, WorkerStuck
from tests.faults import deadly
from tests.faults.test_crashes import TIMEOUTS, load, read_to_the_bad_one, read_what_there_is


@pytest.mark.parametrize(
    ("bad", "kind", "text", "options"),
    [
        (deadly.gives_up, deadly.GivenUp, "enough", {}),
        (deadly.segfault, PoisonSample, "position 13 ended its worker twice: it was killed by SIGSEGV", {}),
        (deadly.hangs_for_ever, WorkerStuck, "in hangs_for_ever", {"timeout": TIMEOUTS["spawn"]}),
    ],
)
def test_an_interpreter_of_its_own_crashes_as_others_do(bad: Any, kind: Any, text: str, options: Any) -> None:
    with load("spawn", bad, **options) as loader:
        batches = iter(loader)
        if kind is deadly.GivenUp:
            read_to_the_bad_one(batches)
        with pytest.raises(kind, match=text):
            read_what_there_is(batches) if kind is not deadly.GivenUp else next(batches)
