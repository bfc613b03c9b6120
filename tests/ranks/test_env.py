"""The variables: replicas from our launcher and from PopRun, the identity of a job, each name once."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import BadOption
from headrace.ranks import env
from headrace.ranks.env import Replicas, integer, job, replicas

OURS = {
    "HEADRACE_NUM_TOTAL_REPLICAS": "8",
    "HEADRACE_NUM_LOCAL_REPLICAS": "2",
    "HEADRACE_REPLICA_INDEX_OFFSET": "6",
}
POPRUN = {name.replace("HEADRACE_", "POPDIST_"): value for name, value in OURS.items()}


def test_without_a_launcher_nothing_is_said_about_replicas() -> None:
    assert replicas({}) is None
    assert replicas({"HEADRACE_NUM_TOTAL_REPLICAS": ""}) is None


@pytest.mark.parametrize("variables", [OURS, POPRUN])
def test_instance_3_of_4_drives_replicas_6_and_7_of_8(variables: dict[str, str]) -> None:
    assert replicas(variables) == Replicas(total=8, local=2, offset=6)


def test_our_launcher_is_believed_before_poprun() -> None:
    assert replicas(POPRUN | OURS | {"HEADRACE_REPLICA_INDEX_OFFSET": "0"}) == Replicas(8, 2, 0)


def test_one_replica_needs_no_more_variables() -> None:
    assert replicas({"POPDIST_NUM_TOTAL_REPLICAS": "1"}) == Replicas(1, 1, 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"HEADRACE_REPLICA_INDEX_OFFSET": "7"}, "does not fit"),
        ({"HEADRACE_REPLICA_INDEX_OFFSET": "-1"}, "does not fit"),
        ({"HEADRACE_NUM_LOCAL_REPLICAS": "0"}, "does not fit"),
        ({"HEADRACE_REPLICA_INDEX_OFFSET": ""}, "HEADRACE_REPLICA_INDEX_OFFSET"),
        ({"HEADRACE_NUM_TOTAL_REPLICAS": "many"}, "HEADRACE_NUM_TOTAL_REPLICAS='many'"),
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
