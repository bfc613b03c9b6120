"""PT-12 to PT-16: options that freeze, belong to the launcher, and are checked."""

import json
import re

import pytest

from headrace.doors.replicas.options import DEFAULTS
from headrace.errors import BadOption
from headrace.plan.world import World
from headrace.replicas import CommGroupType, DataLoader, LaunchedOptions, Options, popdist, poptorch
from tests.conftest import RunScript

OMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
LAUNCHED = {
    **OMPI,
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "3",
    "LOCAL_WORLD_SIZE": "4",
    "HEADRACE_RUN": "3/4",
    "HEADRACE_NUM_LOCAL_REPLICAS": "2",
}


def under(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_outside_any_launcher_there_is_one_process_with_one_replica() -> None:
    for options in (Options(), LaunchedOptions()):
        assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
        assert (options.replication_factor, options.device_iterations, options.input_group_size) == (1, 1, 1)
        assert options.Training.gradient_accumulation == 1
        assert options.random_seed is None
    assert not popdist.isPopdistEnvSet()
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (1, 1, 0)


def test_plain_options_know_the_processes_of_mpi_but_not_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    under(monkeypatch, LAUNCHED)
    options = Options()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (3, 4)
    assert options.replication_factor == 1


def test_launched_options_know_the_replicas_too(monkeypatch: pytest.MonkeyPatch) -> None:
    under(monkeypatch, LAUNCHED)
    options = LaunchedOptions()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (3, 4)
    assert options.replication_factor == 2
    assert popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances(), popdist.getLocalInstanceIndex()) == (3, 4, 3)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (8, 2, 6)


def test_replicas_of_another_launcher_than_ours_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    under(monkeypatch, {**LAUNCHED, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    with pytest.raises(BadOption, match="start the ranks with one launcher"):
        LaunchedOptions()
    under(monkeypatch, LAUNCHED)
    with pytest.raises(BadOption, match=r"2 of 8 replicas.* 3 processes"):
        LaunchedOptions(world=World(0, 3))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda o: o.replicationFactor(2), "replicationFactor"),
        (lambda o: o.Distributed.disable(), "Distributed.disable"),
        (lambda o: o.Distributed.setEnvVarNames("A", "B"), "Distributed.setEnvVarNames"),
        (lambda o: o.Distributed.configureProcessId(0, 2), "Distributed.configureProcessId"),
    ],
)
def test_what_the_launcher_owns_cannot_be_set(call, name: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RuntimeError) as told:
        call(LaunchedOptions())
    assert str(told.value) == f"Cannot call `{name}` with headrace.replicas.LaunchedOptions"
    with pytest.raises(RuntimeError) as told:
        call(popdist.poptorch.Options())
    assert str(told.value) == f"Cannot call `{name}` with popdist.poptorch.Options"


def test_a_loader_freezes_its_options_and_a_clone_can_change() -> None:
    options = Options().deviceIterations(2)
    DataLoader(options, range(8), batch_size=2)
    for change in (
        lambda: options.deviceIterations(3),
        lambda: options.Training.gradientAccumulation(3),
        lambda: options.Distributed.disable(),
    ):
        with pytest.raises(AttributeError, match="Can't modify frozen Options"):
            change()
    clone = options.clone().deviceIterations(5)
    clone.Training.gradientAccumulation(3)
    assert (clone.device_iterations, clone.Training.gradient_accumulation) == (5, 3)
    assert (options.device_iterations, options.Training.gradient_accumulation) == (2, 1)


def test_setters_are_chained() -> None:
    options = Options().deviceIterations(4).replicationFactor(2).randomSeed(9)
    assert (options.device_iterations, options.replication_factor, options.random_seed) == (4, 2, 9)
    assert options.Training.gradientAccumulation(8).gradient_accumulation == 8


@pytest.mark.parametrize("value", ["2", 2.0, True, None])
def test_a_setter_refuses_another_type_and_names_the_one_it_expects(value: object) -> None:
    for setter, option in (
        ("deviceIterations", "device_iterations"),
        ("replicationFactor", "replication_factor"),
        ("randomSeed", "random_seed"),
    ):
        said = f"Unexpected type {type(value)} for option {option}. Expected <class 'int'>"
        with pytest.raises(BadOption, match=re.escape(said)):
            getattr(Options(), setter)(value)


def test_options_are_told_as_plain_data_and_freezing_can_be_asked_for() -> None:
    options = Options(world=World(1, 2)).deviceIterations(3)
    options.Training.gradientAccumulation(4)
    assert json.loads(json.dumps(options.toDict())) == {
        "device_iterations": 3,
        "gradient_accumulation": 4,
        "replication_factor": 1,
        "input_group_size": 1,
        "input_group_type": "Consecutive",
        "num_distributed_processes": 2,
        "distributed_process_id": 1,
    }
    options.checkIsFrozen()
    assert options.randomSeed(7).toDict()["random_seed"] == 7
    options.freeze()
    options.toDict()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.checkIsFrozen()


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(BadOption, match="deviceIterations\\(0\\)"):
        Options().deviceIterations(0)
    with pytest.raises(BadOption, match="randomSeed\\(-1\\)"):
        Options().randomSeed(-1)


def test_input_groups_must_fill_the_replicas() -> None:
    options = Options().replicationFactor(8)
    for size, wrong in ((3, "must be a factor of"), (16, "cannot be larger than")):
        said = f"input_group_size {wrong} replication_factor: groups of {size} do not fill 8 replicas"
        with pytest.raises(ValueError, match=said):
            options.inputReplicaGrouping(size, CommGroupType.Consecutive)
    with pytest.raises(ValueError, match=r"input_group_type cannot be All"):
        options.inputReplicaGrouping(2, CommGroupType.All)
    with pytest.raises(ValueError, match="Expected one of All, Consecutive"):
        options.inputReplicaGrouping(2, "Neighbours")
    options.inputReplicaGrouping(4, CommGroupType.NoGrouping)
    assert options.input_group_size == 1
    options.inputReplicaGrouping(4, CommGroupType.Orthogonal)
    assert (options.input_group_size, options.input_group_type) == (4, CommGroupType.Orthogonal)
    with pytest.raises(ValueError, match="groups of 4 do not fill 2 replicas"):
        DataLoader(options.replicationFactor(2), range(8))


def test_the_process_can_be_told_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    under(monkeypatch, OMPI)
    monkeypatch.setenv("MY_SIZE", "6")
    monkeypatch.setenv("MY_RANK", "5")
    options = Options()
    options.Distributed.setEnvVarNames("MY_SIZE", "MY_RANK")
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (5, 6)
    options.Distributed.setEnvVarNames("NOT_SET", "NOT_SET_EITHER")
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    options.Distributed.configureProcessId(1, 3)
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (1, 3)
    options.Distributed.disable()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    assert Options(world=World(2, 5)).Distributed.processId == 2
    with pytest.raises(BadOption):
        options.Distributed.configureProcessId(3, 3)


@pytest.mark.parametrize("name", DEFAULTS)
def test_options_in_the_environment_are_refused_and_not_ignored(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, json.dumps({"deviceIterations": 7}))
    with pytest.raises(BadOption, match=f"{name} is set"):
        Options()


def test_the_public_list_is_complete_and_resolves() -> None:
    import headrace.replicas as public

    assert list(public.__all__) == sorted(set(public.__all__))
    assert not [name for name in public.__all__ if not hasattr(public, name)]
    assert poptorch.Options is Options


def test_importing_the_loader_and_using_it_does_not_load_torch(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        from headrace.replicas import DataLoader, Options
        batches = list(DataLoader(Options().randomSeed(3), range(10), batch_size=4, shuffle=True))
        print([type(b).__name__ for b in batches], "torch" in sys.modules)
        """
    )
    assert (done.stdout, done.returncode) == ("['ndarray', 'ndarray'] False\n", 0), done.stderr
