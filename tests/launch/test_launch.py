"""What a job may be, and what is refused with a reason."""

import socket

import pytest

from headrace.errors import BadOption
from headrace.launch.job import Job, launch


def test_replicas_default_to_one_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Job(num_instances=4).variables()["HEADRACE_NUM_LOCAL_REPLICAS"] == "1"
    assert Job(num_instances=4, num_replicas=8).variables()["HEADRACE_NUM_LOCAL_REPLICAS"] == "2"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_replicas": 7, "num_instances": 2}, "multiple of 2"),
        ({"num_replicas": 0}, "--num-replicas"),
        ({"num_instances": 0}, "--num-instances 0: start at least one"),
        ({"num_instances": 2, "only_output_from_instance": 2}, r"0\.\.1"),
        ({"max_restarts": -1}, "--max-restarts"),
        ({"engine": "ray"}, "torch or mpi"),
        ({"host": "a,b", "num_instances": 3}, "multiple of 2"),
        ({"host": "a,b", "num_instances": 2, "engine": "torch"}, "use --engine mpi"),
        ({"host": "a,b", "num_instances": 2, "max_restarts": 1}, "use --engine torch"),
        ({"host": "a,a", "num_instances": 2}, "each machine once"),
        ({"host": "a,,b", "num_instances": 2}, "each machine once"),
        ({"host": ""}, "each machine once"),
        ({"host": "h[0-1]", "num_instances": 2}, "h0,h1,h2"),
        ({"engine": "mpi", "nnodes": "2", "num_instances": 2}, "--host"),
        ({"engine": "mpi", "rdzv_endpoint": "h:1"}, "--host"),
        ({"nnodes": "2", "num_instances": 3}, "multiple of 2"),
        ({"nnodes": "2", "num_instances": 2}, "--rdzv-endpoint"),
        ({"nnodes": "two"}, "N or MIN:MAX"),
        ({"nnodes": "0"}, "N or MIN:MAX"),
        ({"nnodes": "3:2"}, "N or MIN:MAX"),
        ({"nnodes": "2", "num_instances": 2, "node_rank": 2, "rdzv_endpoint": "h:1"}, "--node-rank"),
        ({"nnodes": "1:2", "num_instances": 2, "node_rank": 0, "rdzv_endpoint": "h:1"}, "--node-rank"),
        ({"node_rank": 0}, "--rdzv-endpoint"),
        ({"rdzv_endpoint": "h"}, "HOST:PORT"),
        ({"rdzv_endpoint": ":1"}, "HOST:PORT"),
        ({"mpi_global_args": "-x A"}, "add --engine mpi"),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_what_to_write(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Job(**options)  # type: ignore[arg-type]


def test_other_machines_are_reached_by_mpirun() -> None:
    assert Job(host="h0,h1", num_instances=2).chosen_engine == "mpi"
    assert Job(host="h1").chosen_engine == "mpi"
    for here in ("localhost", socket.gethostname()):
        assert Job(host=here, num_instances=2).chosen_engine == "torch"
    assert Job(engine="mpi").chosen_engine == "mpi"


def test_threads_are_shared_out_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)
    job = Job(num_instances=1000)
    assert (job.variables()["OMP_NUM_THREADS"], job.variables()["PYTHONUNBUFFERED"]) == ("1", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    assert (job.variables()["OMP_NUM_THREADS"], job.variables()["PYTHONUNBUFFERED"]) == ("3", "")


def test_a_rank_set_by_hand_does_not_reach_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_RANK", "0")
    with pytest.raises(BadOption, match="unset it"):
        launch(Job(program=("true",)))


def test_where_torch_starts_no_processes_torchrun_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.launch.job.os.name", "nt")
    with pytest.raises(BadOption, match="needs Linux or macOS; here, start the program with torchrun"):
        launch(Job(program=("true",)))
