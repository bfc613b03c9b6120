"""The profiler names what was planted, and what it draws and writes can be read."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.observe.profile import Profile, Watch, profile
from headrace.observe.profile.predict import simulate
from headrace.pipe import Pipe
from tests.observe import planted
from tests.observe.planted import PLANTED


def run(name: str, batches: int = 60, seconds: float = 3.0) -> Profile:
    make, consumer, _, _ = PLANTED[name]
    with make() as loader:
        return profile(loader, consumer, seconds=seconds, batches=batches)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_bottleneck_is_named(name: str) -> None:
    _, _, room, words = PLANTED[name]
    found = run(name)
    assert (found.verdict.room, words in found.verdict.name) == (room, True), found.text()
    assert found.verdict.bound == ("consumer" if room in ("step", "tail") else "loader")
