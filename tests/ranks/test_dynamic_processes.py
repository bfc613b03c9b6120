"""Dynamic sharding on real processes: the example, and a counter that lives in rank 0 without any process group."""

import json
from pathlib import Path

import pytest

from headrace.launch.mpi import free_port
from tests import warm
from tests.conftest import RunScript
from tests.depth import DEPTH, depth

pytest.importorskip("torch", reason="the counter lives in torch's store")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.deep
@pytest.mark.timeout(120)
def test_the_example_gives_every_sample_once_and_prints_both_times(tmp_path: Path) -> None:
    """Reduced: its ranks are forks, with torchrun's variables; deep: it starts them itself."""
    example = ROOT / "examples" / "dynamic_sharding.py"
    words = ["--samples", depth(80, 400), "--seconds", depth(0.002, 0.01)]
    if DEPTH == "deep":
        done = warm.run(example, words, tmp_path, timeout=110)
    else:
        done = warm.torchrun(2, example, words, tmp_path, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("every sample exactly once: True") == 2
    assert "dynamic / static = " in done.stdout


PROGRAM = """
import json, os, sys, time
from headrace import Loader, Pipe, World

# Two ranks, started by hand.
other = os.fork()
os.environ |= {"HEADRACE_WORLD_SIZE": "2", "HEADRACE_RANK": "1" if other else "0"}
world = World.detect()

class Numbers:
    def __len__(self): return 120
    def __getitem__(self, i):
        time.sleep(0.005 * (1 + 4 * world.rank))
        return i

path, port = sys.argv[1:3]
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
out = []
pipe = Pipe.of(Numbers()).shuffle().batch(2)
with Loader(pipe, seed=3, world=world, sharding="dynamic", workers=world.rank) as loader:
    for epoch in range(2):
        out.append([])
        for batch in loader:
            out[-1] += batch
            if epoch == 1 and len(out[-1]) >= 10:
                break
    state = loader.state_dict()
with open(f"{path}/{world.rank}.json", "w") as file:
    json.dump([out, state], file)
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


@pytest.mark.timeout(100)
@pytest.mark.filterwarnings("ignore")
def test_ranks_without_a_process_group_share_a_counter_at_the_masters_address(
    run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(PROGRAM, tmp_path, free_port(), timeout=90, warm=True)
    assert done.returncode == 0, done.stderr
    (first, _), (second, _) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert sorted(first[0] + second[0]) == list(range(120))
    assert len(first[0]) > len(second[0]) > 0
    assert not set(first[1]) & set(second[1])
