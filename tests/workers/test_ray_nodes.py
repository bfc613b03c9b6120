"""Ray with several nodes on this machine: nodes die in mid-epoch, data outgrow the object store.

Each test is a program of its own: `ray.cluster_utils.Cluster` starts real nodes as its children, and nothing of them
may outlive it. Health checks are quicker than usual, so that a dead node is noticed in seconds.
"""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.conftest import SRC, RunScript
from tests.leaks import describe, in_session, kill
from tests.workers.ray_head import token

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: it comes with headrace[ray]"),
]

CLUSTER = """
import json
import os
import sys
from pathlib import Path
import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster
from headrace import Loader, Pipe

STORE = 100 * 2**20
SPILL = Path.cwd() / "spill"
CONFIG = {
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 5,
    "object_spilling_config": json.dumps({"type": "filesystem", "params": {"directory_path": str(SPILL)}}),
}
head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False, "_system_config": CONFIG}

class Arrays:
    def __init__(self, length, size):
        self.length, self.size = length, size
    def __len__(self):
        return self.length
    def __getitem__(self, i):
        return np.full(self.size, i, np.int64)

def run(main):
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        main(cluster, nodes)
    finally:
        ray.shutdown()
        cluster.shutdown()
        # What served the node that was killed ends by itself, but not at once.
        psutil.wait_procs(psutil.Process().children(recursive=True) + orphans(), timeout=30)

def orphans():
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and os.getsid(process.pid) == os.getsid(0):
                found.append(process)
        except ProcessLookupError:
            pass
    return found
"""

NODE_DEATH = """
def noisy(x):
    return x + np.random.randint(10)

def two(x):
    return [x, -x]

ARRAYS = Arrays(240, 20_000)
SOURCES = {
    "indexed": lambda: Pipe.of(ARRAYS),
    "streamed": lambda: Pipe.of(lambda: (ARRAYS[i] for i in range(240))),
}
PIPES = {
    "indexed": lambda p: p.shuffle().map(noisy).batch(4).collate(),
    "two stages": lambda p: p.shuffle().map(noisy).flatmap(two).batch(4).collate(),
    "three stages": lambda p: p.flatmap(two).batch(2).flatmap(list).map(noisy).batch(4).collate(),
    "streamed": lambda p: p.shuffle(window=20).sharding_filter().map(noisy).batch(4).collate(),
    "only a stream": lambda p: p,
}

def seen(batch):
    return batch.reshape(-1)[::5000].tolist()

def main(cluster, nodes):
    name, source = sys.argv[1:]
    make = PIPES[name](SOURCES[source]())
    strands = 3 if source == "streamed" else None  # one for each actor, whichever node dies
    with Loader(make, seed=3, workers=1, strands=strands) as loader:
        want = [seen(batch) for batch in loader]
    got = []
    with Loader(make, seed=3, workers=3, kind="ray", strands=strands) as loader:
        workers = None
        while workers is None or len(workers.pids()) < 3:  # an actor on every node
            for _ in loader:
                pass
            workers = loader._pool.all()[0]
        loader.set_epoch(0)
        for i, batch in enumerate(loader):
            got.append(seen(batch))
            if i == len(want) // 4:
                busy = {worker.node for worker in workers._scheduler.actors}
                cluster.remove_node(next(node for node in nodes if node.node_id in busy), allow_graceful=False)
        assert workers.restarts, "no actor was on the node that died"
        print("ends:", [why for _, why in workers.restarts], "losses:", workers._losses.total())
    assert got == want, "the stream has changed"

run(main)
"""


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("indexed", "indexed"),
        ("two stages", "indexed"),
        ("three stages", "indexed"),
        ("streamed", "streamed"),
        ("only a stream", "streamed"),
    ],
)
def test_a_node_that_dies_in_mid_epoch_does_not_change_the_stream(
    name: str, source: str, run_script: RunScript
) -> None:
    done = run_script(CLUSTER + NODE_DEATH, name, source, timeout=300, env=token())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was lost with its node" in done.stdout


def test_a_data_set_larger_than_the_object_store_streams_through(run_script: RunScript) -> None:
    done = run_script(
        CLUSTER
        + """
def main(cluster, nodes):
    # 1.2 GB through stores of 100 MB, and nothing of it on disk.
    pipe = Pipe.of(Arrays(600, 250_000)).filter(lambda a: True).batch(4).collate()
    with Loader(pipe, workers=3, kind="ray") as loader:
        firsts = [int(batch[0, 0]) for batch in loader]
    assert firsts == list(range(0, 600, 4)), firsts
    spilled = [path for path in SPILL.rglob("*") if path.is_file()]
    assert not spilled, spilled

run(main)
""",
        timeout=300,
        env=token(),
    )
    assert done.returncode == 0, done.stdout + done.stderr


ALONE = """
import os
import signal
import sys
from headrace import Loader, Pipe

class Sample:
    def __init__(self, number):
        self.number = number

pipe = Pipe.of(list(range(400))).map(Sample).batch(4)
"""


def test_a_loader_starts_a_cluster_if_there_is_none_and_ends_it(run_script: RunScript) -> None:
    done = run_script(
        ALONE
        + """
with Loader(pipe, workers=2, kind="ray") as loader:
    samples = [sample for batch in loader for sample in batch]
assert [sample.number for sample in samples] == list(range(400))
assert all(type(sample) is Sample for sample in samples)
import ray
assert not ray.is_initialized()
""",
        timeout=120,
        env=token(),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_killed_consumer_leaves_no_actor_and_no_cluster(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        ALONE
        + """
with Loader(pipe, workers=2, kind="ray") as loader:
    for i, batch in enumerate(loader):
        if i == 10:
            os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    consumer = subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(SRC), **token()},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert consumer.wait(120) == -signal.SIGKILL
        # Ray's agents notice it by themselves, but only within a minute or two.
        left = [process for process in in_session(consumer.pid) if "Agent" not in describe(process)]
        assert not psutil.wait_procs(left, timeout=20)[1]
    finally:
        kill(in_session(consumer.pid))


def test_a_loader_runs_inside_an_actor(run_script: RunScript) -> None:
    done = run_script(
        CLUSTER
        + """
def epoch(rank):
    from headrace import World
    pipe = Pipe.of(Arrays(40, 1000)).batch(2).collate()
    with Loader(pipe, workers=1, kind="ray", world=World(rank=rank, ranks=2)) as loader:
        return [int(x) for batch in loader for x in batch[:, 0]]

def main(cluster, nodes):
    task = ray.remote(epoch).options(num_cpus=1)
    ranks = ray.get([task.remote(rank) for rank in range(2)])
    assert sorted(ranks[0] + ranks[1]) == list(range(40)), ranks

run(main)
""",
        timeout=200,
        env=token(),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ray_train_tells_the_ranks(run_script: RunScript) -> None:
    done = run_script(
        CLUSTER
        + """
def train(config):
    import ray.train
    from headrace import World
    world = World.detect()
    pipe = Pipe.of(Arrays(40, 1000)).batch(2).collate()
    with Loader(pipe, workers=1, kind="ray", world=world) as loader:
        seen = [int(x) for batch in loader for x in batch[:, 0]]
    Path(config["folder"], f"{world.rank} of {world.ranks}").write_text(json.dumps(seen))

def main(cluster, nodes):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    folder = Path.cwd() / "seen"
    folder.mkdir()
    TorchTrainer(
        train,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}, use_gpu=False),
        run_config=RunConfig(storage_path=str(Path.cwd() / "results")),
    ).fit()
    shares = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert sorted(shares) == ["0 of 2", "1 of 2"], shares
    assert sorted(shares["0 of 2"] + shares["1 of 2"]) == list(range(40)), shares

run(main)
""",
        timeout=300,
        env={**token(), "RAY_TRAIN_V2_ENABLED": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
