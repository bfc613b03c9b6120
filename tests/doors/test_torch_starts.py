"""A training script with everything in one file: its ranks are started in every way that people use.

Dataset, samples, collate_fn and worker_init_fn are defined in the script, each rank loads with workers of every start
method, and what arrives is of the very classes that the rank knows.
"""

import textwrap
from pathlib import Path

import pytest

from tests.conftest import SRC, RunScript

SCRIPT = '''
    """Trains."""
    import os, sys
    from concurrent.futures import ProcessPoolExecutor
    from dataclasses import dataclass

    import torch
    import torch.multiprocessing as mp
    from headrace import DataLoader


    @dataclass
    class Sample:
        index: int
        value: torch.Tensor


    class Batch(list):
        class Note:
            pass


    class Data(torch.utils.data.Dataset):
        scale = None

        def __len__(self):
            return 10

        def __getitem__(self, index):
            return Sample(index, torch.tensor(index * self.scale))


    def collate(samples):
        return Batch(samples)


    def init(worker):
        torch.utils.data.get_worker_info().dataset.scale = SCALE


    SCALE = 3


    def train(rank=0):
        for method in ("fork", "spawn"):
            loader = DataLoader(
                Data(), 4, num_workers=1, collate_fn=collate, worker_init_fn=init, multiprocessing_context=method
            )
            batches = list(loader)
            if method == "spawn" or sys.modules["__main__"].__dict__.get("Batch") is Batch:
                # (Not where Ray has brought the script's classes by value, and the workers are forked: pickle cannot
                # name them. torch refuses such samples.)
                assert [type(batch) for batch in batches] == [Batch] * 3, batches
                assert {type(sample) for batch in batches for sample in batch} == {Sample}
            assert [sample.value.item() for batch in batches for sample in batch] == list(range(0, 30, 3))
        return rank


    def start(way):
        if way == "spawn":
            mp.spawn(train, nprocs=1)
        elif way == "forkserver":
            mp.start_processes(train, nprocs=1, start_method="forkserver")
        elif way == "executor":
            with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
                assert list(pool.map(train, range(2))) == [0, 1]
        elif way == "ray":
            import ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
            assert ray.get([ray.remote(train).remote(rank) for rank in range(2)]) == [0, 1]
            ray.shutdown()
        else:
            train()


    if __name__ == "__main__":
        start(sys.argv[1] if len(sys.argv) > 1 else "here")
        print("trained", flush=True)
'''


deep = pytest.mark.deep


@pytest.mark.parametrize("way", ["spawn", pytest.param("forkserver", marks=deep), pytest.param("executor", marks=deep)])
def test_a_script_whose_ranks_are_started_by(way: str, run_script: RunScript) -> None:
    done = run_script(SCRIPT, way)
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr


@pytest.mark.integrations
@pytest.mark.timeout(300)
def test_a_script_whose_ranks_are_ray_tasks(run_script: RunScript) -> None:
    pytest.importorskip("ray", reason="pip install 'headrace[ray]'")
    done = run_script(SCRIPT, "ray", timeout=240)
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr


@pytest.mark.parametrize("target", [pytest.param("{script}", marks=deep), "-m job.train spawn"])
def test_a_script_under_torchrun(target: str, run_script: RunScript, tmp_path: Path) -> None:
    package = tmp_path / "job"
    package.mkdir()
    (package / "__init__.py").touch()
    # A package in the working folder, run as a module, imports what stands beside it.
    (package / "scales.py").write_text("SCALE = 3\n")
    script = package / "train.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("SCALE = 3", "from job.scales import SCALE"))
    words = target.format(script=script).split()
    done = run_script(
        f"""
        import subprocess, sys
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
        sys.exit(subprocess.run([*torchrun, *{words!r}]).returncode)
        """,
        env={"PYTHONPATH": f"{SRC}:{tmp_path}", "OMP_NUM_THREADS": "1"},
    )
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr
