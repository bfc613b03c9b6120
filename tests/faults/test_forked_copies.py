"""Code of the pipe that forks its worker, and returns in both processes: the worker's samples arrive, and no others."""

import json

import pytest

from tests.conftest import RunScript

FORKING = """
    import json, os, sys
    import numpy as np
    import headrace
    from headrace import Loader, Pipe

    SIZE = 20_000


    class Forking:
        \"\"\"Of every batch of four, the second sample forks. The copy goes on when the worker is at the last.\"\"\"

        def __init__(self, end):
            self.end = end

        def __len__(self):
            return 12

        def __getitem__(self, i):
            value = i
            if i % 4 == 1:
                ends = os.pipe()
                self.copy = os.fork()
                if not self.copy:
                    os.close(ends[1])
                    os.read(ends[0], 1)
                    value = -1
                    if self.end == "raise":
                        raise ValueError("in the copy")
                    if self.end == "exit":
                        sys.exit()
                self.ends = ends
            elif i % 4 == 3 and self.copy:
                for end in self.ends:
                    os.close(end)
                assert os.waitpid(self.copy, 0)[1] == (0 if self.end == "exit" else 256)
            return np.full(SIZE, value)


    if __name__ == "__main__":
        kind, end = sys.argv[1:]
        if kind == "DataLoader":
            batches = [batch.numpy() for batch in headrace.DataLoader(Forking(end), 4, num_workers=1)]
        else:
            options = {"kind": "thread"} if kind == "thread" else {"start_method": kind}
            with Loader(Pipe.of(Forking(end)).batch(4).collate(), workers=1, **options) as loader:
                batches = list(loader)
        print(json.dumps([[sorted(set(row)) for row in batch.tolist()] for batch in batches]))
"""


@pytest.mark.parametrize("end", ["return", "raise", "exit"])
@pytest.mark.parametrize("kind", ["server", "fork", "thread", "DataLoader"])
def test_the_samples_of_the_worker_arrive_and_not_those_of_its_copy(kind: str, end: str, run_script: RunScript) -> None:
    if kind == "DataLoader":
        pytest.importorskip("torch")
    done = run_script(FORKING, kind, end, warm=kind == "DataLoader")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[[i] for i in range(start, start + 4)] for start in (0, 4, 8)]
    told = done.stderr.count("end a copy with os._exit() where its work is done")
    assert told == (0 if end == "exit" else 3), done.stderr
    assert done.stderr.count("ValueError: in the copy") == (3 if end == "raise" else 0)
