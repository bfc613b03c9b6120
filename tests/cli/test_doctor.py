"""The doctor: who started us and why, what the machine allows, what to change."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import machine
from headrace.cli.doctor import advice, examine
from tests.cli.conftest import Headrace
from tests.conftest import SRC, RunScript
from tests.programs import needs_mpirun

DOCTOR = [sys.executable, "-m", "headrace.cli", "doctor", "--json"]


def test_without_a_launcher_it_says_none_and_what_it_saw(headrace: Headrace) -> None:
    done = headrace("doctor")
    assert done.returncode == 0
    assert done.stdout.startswith("launcher   none\n  world    rank 0 of 1")
    for word in ("cores", "memory", "/dev/shm", "files", "memfd", "extras", "mpirun", "advice"):
        assert word in done.stdout


def test_it_imports_no_extra(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        from headrace.cli import main
        main(["doctor"])
        print(sorted({"torch", "numpy", "ray", "pyarrow"} & set(sys.modules)))
        """
    )
    assert done.stdout.endswith("[]\n"), done.stdout


def test_it_is_not_fooled_by_sbatch_without_srun(headrace: Headrace) -> None:
    done = headrace("doctor", environ={"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "launcher   none")
    assert "start ranks with srun" in done.stdout


def test_it_shows_who_disagrees(headrace: Headrace) -> None:
    inner = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    outer = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    done = headrace("doctor", environ=inner | outer)
    assert "launcher   torch variables\n  because  RANK=1, WORLD_SIZE=2" in done.stdout
    assert "not      slurm, which says rank 0 of 1 (SLURM_PROCID=0" in done.stdout


def test_variables_that_cannot_be_true_are_shown_and_give_code_1(headrace: Headrace) -> None:
    done = headrace("doctor", environ={"RANK": "5", "WORLD_SIZE": "4"})
    assert done.returncode == 1
    assert "RANK=5, WORLD_SIZE=4" in done.stdout


def test_it_names_headrace_run_and_its_replicas(headrace: Headrace) -> None:
    pytest.importorskip("torch", reason="the torch engine needs torch")
    done = headrace("run", "--num-replicas", "4", "--num-instances", "2", *DOCTOR)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        tag = f"[1,{rank}]<stdout>:"
        report = json.loads(
            "".join(line.removeprefix(tag) for line in done.stdout.splitlines() if line.startswith(tag))
        )
        assert (report["launcher"]["name"], report["launcher"]["world"]["rank"]) == ("headrace run", rank)
        assert report["launcher"]["replicas"] == {"total": 4, "local": 2, "offset": 2 * rank}


@pytest.mark.integrations
@needs_mpirun
def test_it_names_open_mpi() -> None:
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "1", "-x", f"PYTHONPATH={SRC}", *DOCTOR]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
    assert json.loads(done.stdout)["launcher"]["name"] == "openmpi"


def healthy() -> dict[str, Any]:
    report = examine()
    report["launcher"] = {"name": "none", "error": None, "warnings": [], "world": {"local_ranks": 1}}
    report["cores"] = {"machine": 64, "allowed": 64, "quota": None}
    report["memory"] = {"total": 1 << 36, "available": 1 << 35, "limit": None, "locked": None}
    report["files"] = {"soft": 65536, "hard": 65536}
    report["start"] = {"memfd": True}
    report["shm"] = {"total": 1 << 26, "free": 1 << 26}
    report["extras"] = {"torch": "2"}
    return report


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("launcher", {"world": {"local_ranks": 8}}, "workers a rank: 7 (64 cores here for 8 ranks)"),
        ("launcher", {"warnings": ["be careful"]}, "be careful"),
        ("cores", {"quota": 2.5}, "the container gives 2.5 of 64 cores"),
        ("memory", {"limit": 1 << 30}, "memory is limited to 1.0 GB"),
        ("files", {"soft": 1024}, "ulimit -n 65536"),
        ("start", {"memfd": False}, "--shm-size=8g"),
        ("extras", {"torch": None}, "pip install 'headrace[torch]'"),
    ],
)
def test_advice_is_given_where_it_helps_and_only_there(part: str, values: dict[str, Any], said: str) -> None:
    report = healthy()
    assert advice(report) == ["workers a rank: 63 (64 cores here for 1 rank)"]
    report[part] = report[part] | values
    assert said in "\n".join(advice(report))


@pytest.fixture
def container(tmp_path: Path) -> dict[str, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (cgroups / "a" / "b").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:   1000000 kB\nMemFree:  1 kB\nMemAvailable:   500000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    return {"proc": proc, "cgroups": cgroups}


def test_the_tightest_limit_of_all_cgroups_counts(container: dict[str, Path]) -> None:
    cgroups = container["cgroups"]
    assert machine.cores(**container)["quota"] is None
    (cgroups / "a" / "b" / "cpu.max").write_text("max 100000\n")
    (cgroups / "a" / "cpu.max").write_text("150000 100000\n")
    (cgroups / "a" / "b" / "memory.max").write_text("400000000\n")
    (cgroups / "a" / "memory.max").write_text("300000000\n")
    assert machine.cores(**container)["quota"] == 1.5
    assert machine.memory(**container)["limit"] == 300_000_000
    assert machine.memory(**container)["available"] == 512_000_000


def test_limits_of_the_first_cgroup_version_count_too(container: dict[str, Path]) -> None:
    cgroups = container["cgroups"]
    for name in ("cpu", "memory"):
        (cgroups / name).mkdir()
    (cgroups / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (cgroups / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert (machine.cores(**container)["quota"], machine.memory(**container)["limit"]) == (None, None)
    (cgroups / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    (cgroups / "memory" / "memory.limit_in_bytes").write_text("100000000\n")
    assert (machine.cores(**container)["quota"], machine.memory(**container)["limit"]) == (2.0, 100_000_000)


def test_a_number_of_ranks_that_cannot_be_is_refused(headrace: Headrace) -> None:
    done = headrace("doctor", "--ranks", "0")
    assert (done.returncode, "--ranks 0: a whole number >= 1" in done.stderr) == (2, True)


def test_of_a_pipe_it_says_how_often_ranks_will_read_the_data(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from headrace import Pipe\n"
        "stream = Pipe.of(lambda: iter(range(10))).batch(2)\n"
        "numbers = Pipe.of(range(10)).shuffle().batch(2)\n"
    )
    done = headrace("doctor", f"{tmp_path}/train.py:stream", "--ranks", "4")
    assert "each of 4 ranks reads all of it, so the job reads the data 4 times" in done.stdout, done
    done = headrace("doctor", f"{tmp_path}/train.py:numbers")
    assert "8 ranks read every sample once" in done.stdout
