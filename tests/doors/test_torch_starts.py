"""A training script (DDP) with everything in one file: its ranks are started in every way that people use.

Dataset, samples, collate_fn and worker_init_fn are defined in the script, each rank loads its share with workers of
every start method, what arrives is of the very classes that the rank knows, and the ranks average their gradients.
"""

import textwrap
from pathlib import Path

import pytest

from tests.conftest import SRC, RunScript
from tests.depth import depth

SCRIPT = '''
    """Trains."""
    import os, sys, tempfile
    from concurrent.futures import ProcessPoolExecutor
    from dataclasses import dataclass

    import torch
    import torch.distributed as dist
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
    METHODS = ("fork", "spawn")


    def train(rank, ranks, meeting):
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        for method in METHODS:
            data = Data()
            sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
            loader = DataLoader(
                data, 4, sampler=sampler, num_workers=1, collate_fn=collate, worker_init_fn=init,
                multiprocessing_context=method,
            )
            seen = []
            for batch in loader:
                if method == "spawn" or sys.modules["__main__"].__dict__.get("Batch") is Batch:
                    # (Not where Ray has brought the script's classes by value, and the workers are forked: pickle
                    # cannot name them. torch refuses such samples.)
                    assert type(batch) is Batch, batch
                    assert {type(sample) for sample in batch} == {Sample}
                values = torch.stack([sample.value for sample in batch]).float()
                model.zero_grad()
                model(values[:, None]).mean().backward()
                mean = values.mean()
                dist.all_reduce(mean)
                assert torch.isclose(model.module.weight.grad.squeeze(), mean / ranks)
                seen += values.tolist()
            assert seen == list(range(3 * rank, 30, 3 * ranks)), seen
        dist.destroy_process_group()
        return rank


    def start(way, ranks, folder):
        meeting = f"file://{folder}/meeting"
        if way in ("spawn", "forkserver"):
            mp.start_processes(train, (ranks, meeting), nprocs=ranks, start_method=way)
        elif way == "executor":
            with ProcessPoolExecutor(ranks, mp_context=mp.get_context("spawn")) as pool:
                for turn in "ab":  # (the second time, its processes have been at work before)
                    done = pool.map(train, range(ranks), [ranks] * ranks, [meeting + turn] * ranks)
                    assert list(done) == list(range(ranks))
        elif way == "ray":
            import ray

            ray.init(num_cpus=ranks, include_dashboard=False, log_to_driver=False, logging_level="error")
            task = ray.remote(train)
            assert ray.get([task.remote(rank, ranks, meeting) for rank in range(ranks)]) == list(range(ranks))
            ray.shutdown()
        else:
            train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")


    if __name__ == "__main__":
        with tempfile.TemporaryDirectory() as folder:
            start(sys.argv[1], int(sys.argv[2]), folder)
        if os.environ.get("RANK", "0") == "0":
            print("trained", flush=True)
'''


pytestmark = pytest.mark.timeout(300)
deep = pytest.mark.deep
RANKS = depth(1, 2)


@pytest.mark.parametrize("way", ["spawn", pytest.param("forkserver", marks=deep), pytest.param("executor", marks=deep)])
def test_a_script_whose_ranks_are_started_by(way: str, run_script: RunScript) -> None:
    done = run_script(SCRIPT, way, RANKS, timeout=240, warm=True)
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr


@pytest.mark.integrations
def test_a_script_whose_ranks_are_ray_tasks(run_script: RunScript) -> None:
    pytest.importorskip("ray", reason="pip install 'headrace[ray]'")
    done = run_script(SCRIPT, "ray", 2, timeout=240)
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr


@pytest.mark.parametrize(
    "target",
    [
        "-m job.train env 0",
        pytest.param("{script} env 0", marks=deep),
        pytest.param("-m job.train spawn 1", marks=deep),  # each rank of torchrun's starts another
    ],
)
def test_a_script_under_torchrun(target: str, run_script: RunScript, tmp_path: Path) -> None:
    package = tmp_path / "job"
    package.mkdir()
    (package / "__init__.py").touch()
    # A package in the working folder, run as a module, imports what stands beside it.
    (package / "scales.py").write_text("SCALE = 3\n")
    script = package / "train.py"
    text = textwrap.dedent(SCRIPT).replace("SCALE = 3", "from job.scales import SCALE")
    script.write_text(text.replace('("fork", "spawn")', depth('("spawn",)', '("fork", "spawn")')))
    words = target.format(script=script).split()
    done = run_script(
        f"""
        import os, sys
        from torch.distributed.run import main
        os.environ |= {{"PYTHONPATH": "{SRC}:{tmp_path}", "OMP_NUM_THREADS": "1"}}
        main(["--nproc-per-node", "{RANKS}", *{words!r}])
        """,
        timeout=240,
        warm=True,
    )
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr
