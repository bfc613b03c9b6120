"""SwiftLoader in real processes: several consumers, a launcher, programs given in unusual ways."""

import json
import textwrap
from pathlib import Path

import pytest

from headrace.doors.swift.plan import ArcPlan
from tests.conftest import RunScript

CONSUMERS = """
    import json, os, signal, subprocess, sys, warnings
    from headrace.doors.swift.loader import SwiftLoader

    class Read:
        def __init__(self, count):
            self.count = count
        def __len__(self):
            return self.count
        def __getitem__(self, index):
            return index, os.getpid()

    def consume(consumer, kills):
        warnings.simplefilter("ignore")
        epochs = []
        with SwiftLoader(Read, {"count": 203}, 5, 4, 2, seed=11) as loader:
            loader.start(consumer)
            for epoch in range(3):
                epochs.append([])
                for number, (indices, pids) in enumerate(loader):
                    epochs[-1].append(indices.tolist())
                    if kills and number == 2:
                        os.kill(int(pids[0]), signal.SIGKILL)
            retries = loader.stats().engine.retries
        print(json.dumps([consumer, epochs, retries]))

    if __name__ == "__main__":
        if len(sys.argv) == 3:
            consume(int(sys.argv[1]), sys.argv[2] == "kills")
        else:
            kinds = ["calm", "kills", "calm", "kills"]
            started = [
                subprocess.Popen([sys.executable, __file__, str(i), kind], stderr=subprocess.DEVNULL)
                for i, kind in enumerate(kinds)
            ]
            sys.exit(max(process.wait() for process in started))
"""


def test_four_consumers_with_two_workers_each_share_every_epoch_though_workers_are_killed(
    run_script: RunScript,
) -> None:
    done = run_script(CONSUMERS, timeout=55)
    assert done.returncode == 0, done.stderr
    plan = ArcPlan(4, 2, 5, shuffle=True, nearby=25, seed=11)
    found = {consumer: (epochs, retries) for consumer, epochs, retries in map(json.loads, done.stdout.splitlines())}
    assert sorted(found) == [0, 1, 2, 3]
    for consumer, (epochs, retries) in found.items():
        count = plan.batches(203, consumer)
        assert epochs == [[plan.indices(203, e, consumer, b) for b in range(count)] for e in range(3)]
        assert (retries > 0) == (consumer in (1, 3))
    for epoch in range(3):
        assert sorted(i for epochs, _ in found.values() for batch in epochs[epoch] for i in batch) == list(range(203))


LAUNCHED = """
    import json, os, warnings
    from headrace.doors.swift.loader import SwiftLoader

    class Numbers:
        def __len__(self):
            return 30
        def __getitem__(self, index):
            return index

    if __name__ == "__main__":
        warnings.simplefilter("ignore")
        with SwiftLoader(Numbers, {}, 4, nb_consumer=2, worker_per_consumer=1, seed=3) as loader:
            loader.start()
            told = [loader.stats().consumer_index, [i for batch in loader for i in batch.tolist()]]
        with open(f"told-{os.environ['RANK']}", "w") as file:
            json.dump(told, file)
"""


def test_under_a_real_launcher_each_rank_gets_its_own_share(run_script: RunScript, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.run")
    (tmp_path / "rank.py").write_text(textwrap.dedent(LAUNCHED))
    launch = "import sys; from torch.distributed.run import main; main(sys.argv[1:])"
    done = run_script(launch, "--standalone", "--nproc-per-node", 2, tmp_path / "rank.py", timeout=58, warm=True)
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"told-{rank}").read_text()) for rank in (0, 1)]
    assert [index for index, _ in told] == [0, 1]
    assert sorted(i for _, share in told for i in share) == list(range(30))


@pytest.mark.parametrize("piped", [False, True])
def test_a_class_of_the_main_program_and_a_lambda_travel(run_script: RunScript, piped: bool) -> None:
    done = run_script(
        """
        import sys
        from headrace.doors.swift.loader import SwiftLoader

        class Sample:
            def __init__(self, value):
                self.value = value

        class Data:
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return Sample(index)

        loader = SwiftLoader(Data, {}, 4, 1, 1, shuffle=False, collate_fn=lambda samples: [s for s in samples])
        loader.start(0)
        for batch in loader:
            assert all(type(sample) is Sample for sample in batch)
            print([sample.value for sample in batch])
        loader.close()
        """,
        piped=piped,
        timeout=30,
    )
    assert done.stdout == "[0, 1, 2, 3]\n[4, 5, 6, 7]\n", done.stderr


def test_without_a_device_torch_is_not_loaded(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        from headrace.doors.swift.loader import SwiftLoader

        class Data:
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return "torch" in sys.modules

        with SwiftLoader(Data, {}, 4, 1, 1) as loader:
            loader.start(0)
            print([batch.tolist() for batch in loader], "torch" in sys.modules)
        """,
        timeout=30,
    )
    assert done.stdout == "[[False, False, False, False], [False, False, False, False]] False\n", done.stderr
