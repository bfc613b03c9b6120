"""The variables: replicas from our launcher, the identity of a job, each name once."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import BadOption
from headrace.ranks import env
from headrace.ranks.env import Replicas, integer, job, replicas

OURS = {"HEADRACE_RUN": "3/4", "RANK": "3", "WORLD_SIZE": "4", "HEADRACE_NUM_LOCAL_REPLICAS": "2"}


def test_without_our_launcher_nothing_is_said_about_replicas() -> None:
    assert replicas({}) is None
    assert replicas({"RANK": "3", "WORLD_SIZE": "4", "HEADRACE_NUM_LOCAL_REPLICAS": ""}) is None


def test_instance_3_of_4_drives_replicas_6_and_7_of_8() -> None:
    assert replicas(OURS) == Replicas(total=8, local=2, offset=6)


@pytest.mark.parametrize("rank", range(2))
def test_an_elastic_job_counts_the_replicas_that_are_there(rank: int) -> None:
    there = {"HEADRACE_RUN": f"{rank}/2", "RANK": str(rank), "WORLD_SIZE": "2"}
    assert replicas(OURS | there) == Replicas(total=4, local=2, offset=2 * rank)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, "another launcher was started inside `headrace run`"),
        ({"RANK": "", "WORLD_SIZE": ""}, "another launcher was started inside `headrace run`"),
        ({"HEADRACE_NUM_LOCAL_REPLICAS": "0"}, "HEADRACE_NUM_LOCAL_REPLICAS=0"),
        ({"HEADRACE_NUM_LOCAL_REPLICAS": "many"}, "HEADRACE_NUM_LOCAL_REPLICAS='many'"),
    ],
)
def test_replicas_that_cannot_be_are_refused_by_name(change: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        replicas(OURS | change)


def test_an_empty_variable_is_not_set() -> None:
    assert integer({"RANK": " "}, "RANK") is None
    assert integer({"RANK": " 3 "}, "RANK") == 3


def test_the_identity_of_a_job_is_equal_on_its_ranks_and_changes_with_a_restart() -> None:
    base = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_PORT": "1"}
    assert job(base | {"RANK": "0"}) == job(base | {"RANK": "1"})
    assert job(base) != job(base | {"TORCHELASTIC_RESTART_COUNT": "1"})
    assert job(base) != job(base | {"TORCHELASTIC_RUN_ID": "b"})


def test_every_variable_of_a_launcher_is_named_once_in_the_whole_package() -> None:
    fields = ("marks", "rank", "ranks", "local_rank", "local_ranks", "node", "nodes")
    names = {name for launcher in (env.OWN, *env.LAUNCHERS) for field in fields for name in getattr(launcher, field)}
    source = Path(env.__file__)
    places = Counter(
        (node.value, path.name)
        for path in source.parent.parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    )
    assert {name for name, _ in places} == names
    assert {file for _, file in places} == {source.name}
    assert set(places.values()) == {1}
