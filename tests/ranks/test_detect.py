"""Every row of the launcher table, every rule and every trap, over environments written by hand."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.plan.world import World
from headrace.ranks import detect as detecting
from headrace.ranks.detect import detect, explain

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}

# All of these describe rank 5 of 8, local rank 1 of 4, node 1 of 2.
FIVE_OF_EIGHT: dict[str, dict[str, str]] = {
    "headrace variables": {
        "HEADRACE_RANK": "5",
        "HEADRACE_WORLD_SIZE": "8",
        "HEADRACE_LOCAL_RANK": "1",
        "HEADRACE_LOCAL_WORLD_SIZE": "4",
    },
    "headrace run": TORCHRUN | {"HEADRACE_RUN": "5/8"},
    "torchrun": TORCHRUN,
    "torch variables": {name: value for name, value in TORCHRUN.items() if name != "TORCHELASTIC_RUN_ID"},
    "openmpi": OPENMPI,
    "mpich": MPICH,
    "slurm": SLURM,
}

# Launchers that nobody here can test.
RARE: dict[str, dict[str, str]] = {
    "horovodrun": {"HOROVOD_RANK": "5", "HOROVOD_SIZE": "8"},
    "poprun": OPENMPI | {"POPDIST_NUM_TOTAL_REPLICAS": "16"},
    "MVAPICH2": {"MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8"},
    "PALS": MPICH | {"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1"},
    "Flux": MPICH | {"FLUX_TASK_RANK": "5", "FLUX_JOB_SIZE": "8"},
    "jsrun": {"JSM_NAMESPACE_RANK": "5", "JSM_NAMESPACE_SIZE": "8"},
    "a TensorFlow cluster": {
        "TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 1}}'
    },
    "Kubeflow": {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_NPROC_PER_NODE": "1"},
    "a Kubernetes Indexed Job": {"JOB_COMPLETION_INDEX": "2", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
    "a TPU pod": {"TPU_WORKER_ID": "2", "TPU_WORKER_HOSTNAMES": "a,b,c"},
}


def says(environ: dict[str, str], modules: dict[str, Any] | None = None) -> Any:
    return explain(environ, modules or {})


@pytest.mark.parametrize("launcher", FIVE_OF_EIGHT)
def test_each_launcher_with_local_ranks_is_read(launcher: str) -> None:
    found = says(FIVE_OF_EIGHT[launcher])
    assert found.world == World(5, 8, 1, 4, 1, 2, source=launcher)
    assert (found.launcher, found.warnings) == (launcher, ())
    assert found.variables.items() <= FIVE_OF_EIGHT[launcher].items()


@pytest.mark.parametrize("launcher", RARE)
def test_a_rare_launcher_is_refused_with_what_to_set_and_never_taken_for_one_process(launcher: str) -> None:
    with pytest.raises(BadOption) as told:
        says(RARE[launcher])
    said = str(told.value)
    assert f"{launcher} has started this process" in said
    assert "set HEADRACE_RANK and HEADRACE_WORLD_SIZE in each process" in said
    by_hand = {"HEADRACE_RANK": "2", "HEADRACE_WORLD_SIZE": "4"}
    (doubt,) = says(RARE[launcher] | by_hand).warnings
    assert "set HEADRACE_LOCAL_RANK and HEADRACE_LOCAL_WORLD_SIZE" in doubt
    local = {"HEADRACE_LOCAL_RANK": "0", "HEADRACE_LOCAL_WORLD_SIZE": "2"}
    found = says(RARE[launcher] | by_hand | local)
    assert (found.world, found.warnings) == (World(2, 4, 0, 2, 1, 2, source="headrace variables"), ())


@pytest.mark.parametrize("launcher", RARE)
def test_what_was_started_inside_a_rare_launcher_is_believed_without_a_doubt(launcher: str) -> None:
    for inner in (TORCHRUN, {name: value for name, value in TORCHRUN.items() if name != "TORCHELASTIC_RUN_ID"}):
        found = says(RARE[launcher] | inner)
        assert (found.world.rank, found.world.ranks, found.warnings) == (5, 8, ())
    found = says(RARE[launcher], {"torch.distributed": fake_torch(1, 2)})
    assert (found.world.rank, found.world.ranks) == (1, 2)


@pytest.mark.parametrize("inner", [OPENMPI, MPICH, SLURM])
def test_ranks_inside_one_pod_of_a_cluster_are_believed(inner: dict[str, str]) -> None:
    for launcher in ("a TensorFlow cluster", "Kubeflow", "a Kubernetes Indexed Job", "a TPU pod"):
        found = says(RARE[launcher] | inner)
        assert (found.world.rank, found.world.ranks, found.warnings) == (5, 8, ())


@pytest.mark.parametrize(
    "environ",
    [
        {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"},
        {"TF_CONFIG": '{"cluster": {"chief": ["a"]}, "task": {"type": "chief", "index": 0}}'},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
    ],
)
def test_what_a_single_process_has_too_is_no_launcher(environ: dict[str, str]) -> None:
    found = says(environ)
    assert (found.world, found.launcher, found.warnings) == (World(), "none", ())


def test_without_a_launcher_there_is_one_process() -> None:
    found = says({"PATH": "/bin", "SLURM_JOB_ID": "7", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (found.world, found.launcher, found.variables, found.warnings) == (World(), "none", {}, ())


def test_jax_variables_give_ranks_and_say_that_machines_are_guessed() -> None:
    names = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}
    found = says(names)
    assert (found.world, found.launcher) == (World(1, 2, 0, 1, 1, 2, source="jax variables"), "jax variables")
    assert "one rank a machine is assumed" in found.warnings[0]
    other = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_PROCESS_INDEX": "1", "JAX_PROCESS_COUNT": "2"}
    assert says(other).world == found.world


# --- the rules -------------------------------------------------------------------------------------------------------


def test_torchrun_started_by_srun_has_the_truth_and_srun_is_listed_as_disagreeing() -> None:
    outer = SLURM | {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    found = says(outer | {"SLURM_LOCALID": "0"} | TORCHRUN)
    assert found.world == World(5, 8, 1, 4, 1, 2, source="torchrun")
    assert [(claim.launcher, claim.rank, claim.ranks) for claim in found.disagree] == [("slurm", 1, 2)]
    assert found.disagree[0].variables["SLURM_PROCID"] == "1"


def test_torchrun_started_inside_headrace_run_has_the_truth() -> None:
    found = says(TORCHRUN | {"HEADRACE_RUN": "0/2"})
    assert (found.launcher, found.world.rank, found.world.ranks) == ("torchrun", 5, 8)


def test_mpirun_inside_sbatch_has_the_truth() -> None:
    found = says(OPENMPI | {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"})
    assert (found.launcher, found.world.rank, found.warnings) == ("openmpi", 5, ())


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("headrace run", "torchrun"),
        ("torchrun", "torch variables"),
        ("torch variables", "openmpi"),
        ("openmpi", "mpich"),
        ("mpich", "slurm"),
    ],
)
def test_the_innermost_launcher_wins(inner: str, outer: str) -> None:
    both = {**FIVE_OF_EIGHT[outer], **FIVE_OF_EIGHT[inner]}
    assert says(both).launcher == inner


def test_variables_set_by_hand_overrule_every_launcher_and_library() -> None:
    modules = {"torch.distributed": fake_torch(0, 2)}
    by_hand = {"HEADRACE_RANK": "3", "HEADRACE_WORLD_SIZE": "4"}
    found = says(TORCHRUN | by_hand, modules)
    assert (found.launcher, found.world.rank, found.world.ranks) == ("headrace variables", 3, 4)
    assert {claim.launcher for claim in found.disagree} == {"torch.distributed", "torchrun", "torch variables"}


def test_fields_of_launchers_that_disagree_are_never_mixed() -> None:
    half = {"RANK": "1", "WORLD_SIZE": "2"}
    found = says(half | SLURM)
    assert found.world == World(1, 2, 0, 1, 1, 2, source="torch variables")
    assert "LOCAL_RANK" in found.warnings[0]


def test_missing_local_ranks_come_from_a_launcher_that_agrees() -> None:
    found = says({"RANK": "5", "WORLD_SIZE": "8"} | SLURM)
    assert (found.world, found.warnings) == (World(5, 8, 1, 4, 1, 2, source="torch variables"), ())
    pmi_of_srun = {"PMI_RANK": "5", "PMI_SIZE": "8"}
    assert says(pmi_of_srun | SLURM).world == World(5, 8, 1, 4, 1, 2, source="mpich")


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({"RANK": "1"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "RANK"),
        ({"TORCHELASTIC_RUN_ID": "a"}, "RANK, WORLD_SIZE"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK"),
        ({"PMI_RANK": "0"}, "PMI_SIZE"),
        ({"HEADRACE_RANK": "0"}, "HEADRACE_WORLD_SIZE"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_PROCESS_ID": "0"}, "JAX_NUM_PROCESSES or JAX_PROCESS_COUNT"),
    ],
)
def test_a_partial_set_is_a_warning_that_names_what_is_missing(environ: dict[str, str], missing: str) -> None:
    found = says(environ)
    assert found.world == World()
    assert f"{missing} is not" in found.warnings[0]
    with_next = says(environ | SLURM)
    assert with_next.world.rank == 5


def test_detect_turns_doubts_into_python_warnings() -> None:
    with pytest.warns(RuntimeWarning, match="WORLD_SIZE is not"):
        assert detect({"RANK": "1"}, {}) == World()


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "8", "WORLD_SIZE": "8"},
        {"RANK": "-1", "WORLD_SIZE": "8"},
        {"RANK": "0", "WORLD_SIZE": "0"},
        {"RANK": "one", "WORLD_SIZE": "8"},
        TORCHRUN | {"LOCAL_RANK": "4"},
        TORCHRUN | {"LOCAL_WORLD_SIZE": "9"},
        SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4(y2)"},
        SLURM | {"SLURM_NODEID": "2"},
    ],
)
def test_impossible_numbers_are_an_error_that_shows_them(environ: dict[str, str]) -> None:
    with pytest.raises(BadOption) as error:
        says(environ)
    assert any(name in str(error.value) for name in environ)


def test_impossible_numbers_of_a_launcher_that_is_not_believed_are_a_warning() -> None:
    found = says(TORCHRUN | {"PMI_RANK": "9", "PMI_SIZE": "8"})
    assert found.launcher == "torchrun"
    assert "PMI_RANK=9" in found.warnings[0]


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_RANK", "1")
    monkeypatch.setenv("HEADRACE_LOCAL_RANK", "1")
    monkeypatch.setenv("HEADRACE_LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("HEADRACE_WORLD_SIZE", "2")
    assert (World.detect().rank, World.detect().ranks) == (1, 2)
    monkeypatch.setenv("HEADRACE_WORLD_SIZE", "4")
    assert World.detect().ranks == 4


# --- the traps -------------------------------------------------------------------------------------------------------


def test_an_sbatch_script_without_srun_is_one_process() -> None:
    found = says({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"})
    assert (found.world, found.launcher) == (World(), "none")
    assert "SLURM_STEP_ID is not" in found.warnings[0]
    assert "srun" in found.warnings[0]


def test_an_interactive_shell_of_a_step_is_one_process() -> None:
    found = says(SLURM | {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_PTY_PORT": "40000"})
    assert found.world == World()
    assert "interactive" in found.warnings[0]


def test_a_step_smaller_than_its_allocation_counts_by_the_step() -> None:
    environ = SLURM | {"SLURM_NTASKS": "64", "SLURM_TASKS_PER_NODE": "32(x2)", "SLURM_NNODES": "9"}
    assert says(environ).world == World(5, 8, 1, 4, 1, 2, source="slurm")


def test_uneven_tasks_per_node_are_read() -> None:
    environ = SLURM | {
        "SLURM_PROCID": "10",
        "SLURM_STEP_NUM_TASKS": "11",
        "SLURM_LOCALID": "2",
        "SLURM_NODEID": "2",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    }
    assert says(environ).world == World(10, 11, 2, 3, 2, 3, source="slurm")


def test_tasks_per_node_asked_for_is_not_what_runs() -> None:
    assert says(SLURM | {"SLURM_NTASKS_PER_NODE": "16"}).world.local_ranks == 4


def test_open_mpis_node_rank_is_not_the_number_of_the_node() -> None:
    found = says(OPENMPI | {"OMPI_COMM_WORLD_NODE_RANK": "3"})
    assert (found.world.node, found.world.nodes) == (1, 2)


def test_the_node_is_unknown_when_ranks_are_not_in_even_blocks() -> None:
    intel = {"PMI_RANK": "4", "PMI_SIZE": "5", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    found = says(intel)
    assert found.world == World(4, 5, 1, 2, 0, 1, source="mpich")
    assert "unknown" in found.warnings[0]
    round_robin = OPENMPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "2"}
    assert "unknown" in says(round_robin).warnings[0]


def test_virtual_local_ranks_are_seen_through() -> None:
    assert says(TORCHRUN | {"LOCAL_RANK": "0"}).world.local_rank == 1
    assert says(TORCHRUN | {"LOCAL_RANK": "0", "RANK": "4"}).world.local_rank == 0


# --- libraries -------------------------------------------------------------------------------------------------------


def fake_torch(rank: int, ranks: int, initialised: bool = True) -> Any:
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: initialised,
        get_rank=lambda: rank,
        get_world_size=lambda: ranks,
    )


def fake_mpi(rank: int, ranks: int, finalized: bool = False) -> Any:
    world = SimpleNamespace(Get_rank=lambda: rank, Get_size=lambda: ranks)
    return SimpleNamespace(Is_initialized=lambda: True, Is_finalized=lambda: finalized, COMM_WORLD=world)


def test_an_initialised_torch_group_is_believed_and_completed_by_the_launcher_that_agrees() -> None:
    found = says(TORCHRUN, {"torch.distributed": fake_torch(5, 8)})
    assert found.world == World(5, 8, 1, 4, 1, 2, source="torch.distributed")
    assert (found.disagree, found.warnings) == ((), ())
    alone = says({}, {"torch.distributed": fake_torch(1, 2)})
    assert (alone.world.rank, alone.world.ranks) == (1, 2)
    assert says(TORCHRUN, {"torch.distributed": fake_torch(0, 1, initialised=False)}).launcher == "torchrun"


def test_a_ray_train_worker_gives_all_fields() -> None:
    context = SimpleNamespace(
        get_world_rank=lambda: 5,
        get_world_size=lambda: 8,
        get_local_rank=lambda: 1,
        get_local_world_size=lambda: 4,
        get_node_rank=lambda: 1,
    )
    found = says(OPENMPI | {"OMPI_COMM_WORLD_RANK": "0"}, {"ray.train": SimpleNamespace(get_context=lambda: context)})
    assert found.world == World(5, 8, 1, 4, 1, 2, source="ray train")


def test_ray_outside_of_a_train_worker_says_nothing() -> None:
    def refuse() -> None:
        raise RuntimeError("not a train worker")

    silent = SimpleNamespace(get_world_rank=lambda: None, get_world_size=lambda: None)
    assert says({}, {"ray.train": SimpleNamespace(get_context=refuse)}).launcher == "none"
    assert says({}, {"ray.train": SimpleNamespace(get_context=lambda: silent)}).launcher == "none"


def test_jax_is_asked_only_once_it_is_initialised() -> None:
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: True), process_index=lambda: 1, process_count=lambda: 2
    )
    assert says({}, {"jax": jax}).world.rank == 1
    asleep = SimpleNamespace(distributed=SimpleNamespace(is_initialized=lambda: False))
    assert says({}, {"jax": asleep}).launcher == "none"


def test_an_mpi_world_of_one_process_is_not_believed() -> None:
    assert says(TORCHRUN, {"mpi4py.MPI": fake_mpi(0, 1)}).world.rank == 5
    assert says({}, {"mpi4py.MPI": fake_mpi(3, 4)}).world.rank == 3
    assert says({}, {"mpi4py.MPI": fake_mpi(3, 4, finalized=True)}).launcher == "none"


def test_a_loader_without_a_world_under_a_launcher_of_several_ranks_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "_warned", False)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loader(Pipe.of([1]), world=World())
        Loader(Pipe.of([1]).batch(1), world=World.detect())
    with pytest.warns(UserWarning, match=r"torchrun has started 8 ranks.*world=World\.detect\(\)") as told:
        Loader(Pipe.of([1]))
    assert told[0].filename == __file__
    Loader(Pipe.of([1]))


def test_a_loader_without_a_world_under_a_rare_launcher_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "_warned", False)
    monkeypatch.setenv("FLUX_TASK_RANK", "1")
    with pytest.warns(
        UserWarning, match=r"Flux has started this process.* set HEADRACE_RANK.*every rank reads everyth"
    ):
        Loader(Pipe.of([1]))
    Loader(Pipe.of([1]))


@pytest.mark.parametrize("variables", [{}, {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}, {**TORCHRUN, "RANK": "9"}])
def test_no_loader_warns_of_ranks_where_there_are_none_or_nobody_knows(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detecting, "_warned", False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    Loader(Pipe.of([1]))
