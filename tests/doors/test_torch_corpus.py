"""The same program on torch's DataLoader and on ours: batches, worker ids, seeds, random values, errors, warnings."""

import pytest

from headrace.doors.torch.loader import DataLoader, TorchLoader
from tests.depth import depth
from tests.doors.torch_corpus import CORPUS, FEWER, story

TWINS = "all read the same samples"
"""The one warning that only ours gives."""


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("name", depth(FEWER, list(CORPUS)))
def test_a_program_cannot_tell_whose_loader_it_is(name: str) -> None:
    """Reduced: each program with one number of workers besides none, and one epoch where workers do not persist."""
    epochs = depth(2 if "persistent" in name else 1, 2)
    theirs = story(CORPUS[name], TorchLoader, epochs)
    ours = story(CORPUS[name], DataLoader, epochs)
    ours["warnings"] = [w for w in ours["warnings"] if TWINS not in w]
    for key in theirs:
        assert ours[key] == theirs[key], key
