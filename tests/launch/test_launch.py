"""What a job may be, and what is refused with a reason."""

from pathlib import Path

import pytest

from headrace.errors import BadOption
from headrace.launch.job import Job, launch
from headrace.ranks import env
from headrace.ranks.env import replicas


def test_replicas_default_to_one_an_instance() -> None:
    assert Job(num_instances=4).replicas == 4
    assert Job(num_replicas=8).local_replicas == 8


def test_every_instance_learns_its_replicas() -> None:
    job = Job(num_replicas=8, num_instances=4)
    told = [replicas(job.variables(rank, 4, {})) for rank in range(4)]
    assert told == [env.Replicas(8, 2, offset) for offset in (0, 2, 4, 6)]


def test_an_elastic_job_counts_the_replicas_that_are_there() -> None:
    job = Job(num_replicas=8, num_instances=4, nnodes="1:2", rdzv_endpoint="h:1")
    assert replicas(job.variables(1, 2, {})) == env.Replicas(total=4, local=2, offset=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_replicas": 7, "num_instances": 2}, "multiple of 2"),
        ({"num_replicas": 0}, "--num-replicas"),
        ({"num_instances": 0}, "--num-instances"),
        ({"num_instances": 2, "only_output_from_instance": 2}, r"0\.\.1"),
        ({"max_restarts": -1}, "--max-restarts"),
        ({"engine": "ray"}, "torch or mpi"),
        ({"host": "a,b", "hostfile": "f"}, "give one of them"),
        ({"host": "a,b", "num_instances": 3}, "multiple of 2"),
        ({"host": "a,b", "num_instances": 2, "engine": "torch"}, "use --engine mpi"),
        ({"host": "a,b", "num_instances": 2, "max_restarts": 1}, "use --engine torch"),
        ({"engine": "mpi", "nnodes": "2", "num_instances": 2}, "--host"),
        ({"nnodes": "2", "num_instances": 3}, "multiple of 2"),
        ({"nnodes": "2", "num_instances": 2}, "--rdzv-endpoint"),
        ({"nnodes": "two"}, "N or MIN:MAX"),
        ({"nnodes": "3:2"}, "N or MIN:MAX"),
        ({"nnodes": "2", "num_instances": 2, "node_rank": 2, "rdzv_endpoint": "h:1"}, "--node-rank"),
        ({"nnodes": "1:2", "num_instances": 2, "node_rank": 0, "rdzv_endpoint": "h:1"}, "--node-rank"),
        ({"node_rank": 0}, "--rdzv-endpoint"),
        ({"rdzv_endpoint": "h"}, "HOST:PORT"),
        ({"rdzv_id": "mine"}, "--rdzv-endpoint"),
        ({"host_subnet": "eth0"}, "--host-subnet"),
        ({"mpi_global_args": "-x A"}, "add --engine mpi"),
        ({"mpi_local_args": "-x A"}, "add --engine mpi"),
        ({"env": ("=1",)}, "NAME"),
        ({"env": ("RANK=1",)}, "the launcher sets RANK"),
        ({"env": ("SURELY_NOT_SET_ANYWHERE",)}, "not set here"),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_what_to_write(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Job(**options)  # type: ignore[arg-type]


def test_other_machines_are_reached_by_mpirun() -> None:
    assert Job(host="h[0-1]", num_instances=2).chosen_engine == "mpi"
    assert Job(host="localhost", num_instances=2).chosen_engine == "torch"
    assert Job(engine="mpi").chosen_engine == "mpi"


def test_threads_are_shared_out_unless_the_user_says_otherwise() -> None:
    job = Job(num_instances=1000)
    assert job.variables(0, 1000, {})["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in job.variables(0, 1000, {"OMP_NUM_THREADS": "3"})
    assert job.variables(0, 1000, {})["PYTHONUNBUFFERED"] == "1"
    assert "PYTHONUNBUFFERED" not in job.variables(0, 1000, {"PYTHONUNBUFFERED": ""})


def test_variables_are_set_and_passed_on() -> None:
    job = Job(env=("A=1=2", "B=", "PATH"))
    given = job.variables(0, 1, {"PATH": "/bin"})
    assert (given["A"], given["B"], given["PATH"]) == ("1=2", "", "/bin")


def test_offline_mode_hides_the_accelerators() -> None:
    assert Job(offline_mode=True).variables(0, 1, {"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in Job().variables(0, 1, {})


def test_a_rank_set_by_hand_does_not_reach_all_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_RANK", "0")
    with (tmp_path / "out").open("wb") as out, pytest.raises(BadOption, match="unset it"):
        launch(Job(program=("true",)), out, out)
