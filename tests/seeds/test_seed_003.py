"""Seed 003, a note on loading data in several processes: its programs, in our words, print what it prints.

The duplicates of its naive stream are part of that, and so are the samples that its hand-written division loses: 99
with 3 workers, 93 to 99 with 10. What should have been printed is what `shard="auto"` gives.
"""

import json
import warnings
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from headrace.doors.torch.loader import DataLoader
from tests.conftest import RunScript

PROGRAM = """
    import json, math, sys, warnings
    import torch
    {taken}

    warnings.simplefilter("always")


    class ByIndex(torch.utils.data.Dataset):
        def __init__(self, start, end):
            super(ByIndex).__init__()
            assert end > start
            self.data = list(range(start, end))

        def __getitem__(self, idx):
            worker_info = torch.utils.data.get_worker_info()
            tell("by index", worker_info.id, self.data[idx])
            return self.data[idx]

        def __len__(self):
            return len(self.data)


    class Undivided(torch.utils.data.IterableDataset):
        def __init__(self, start, end):
            super(Undivided).__init__()
            self.start = start
            self.end = end

        def __iter__(self):
            worker_info = torch.utils.data.get_worker_info()
            tell(type(self).__name__, worker_info.id, self.start, self.end)
            assert repr(worker_info).startswith(f"WorkerInfo(id={{worker_info.id}}, num_workers=")
            return iter(range(self.start, self.end))


    class DividesItself(torch.utils.data.IterableDataset):
        def __init__(self, start, end):
            super(DividesItself).__init__()
            self.start = start
            self.end = end

        def __iter__(self):
            worker_info = torch.utils.data.get_worker_info()
            if worker_info is None:
                iter_start, iter_end = self.start, self.end
            else:
                per_worker = int(math.ceil((self.end - self.start)) / float(worker_info.num_workers))
                iter_start = self.start + worker_info.id * per_worker
                iter_end = min(iter_start + per_worker, self.end)
                tell("itself", worker_info.id, iter_start, iter_end)
            return iter(range(iter_start, iter_end))


    class Divided(Undivided):
        pass


    def worker_init_fn(worker_id):
        worker_info = torch.utils.data.get_worker_info()
        dataset = worker_info.dataset
        overall_start, overall_end = dataset.start, dataset.end
        per_worker = int(math.ceil((overall_end - overall_start)) / float(worker_info.num_workers))
        dataset.start = overall_start + worker_info.id * per_worker
        dataset.end = min(dataset.start + per_worker, overall_end)


    def tell(*what):
        with open(sys.argv[1], "a") as told:
            told.write(json.dumps(what) + chr(10))


    print(list({loader}(ByIndex(3, 100), num_workers=2)))
    print(list({loader}(Undivided(start=3, end=100), num_workers=2)))
    print(list({loader}(DividesItself(start=3, end=100), num_workers=3)))
    print(list({loader}(Divided(start=3, end=100), num_workers=10, worker_init_fn=worker_init_fn)))
"""

FORMS = {
    "by import": {"taken": "from headrace import DataLoader", "loader": "DataLoader"},
    "installed": {"taken": "import headrace; headrace.install()", "loader": "torch.utils.data.DataLoader"},
}


def printed(values: list[int]) -> str:
    return str([f"tensor([{v}])" for v in values]).replace("'", "")


@pytest.mark.parametrize("form", FORMS)
def test_the_programs_of_the_note_print_what_it_prints(form: str, run_script: RunScript, tmp_path: Any) -> None:
    done = run_script(PROGRAM.format(**FORMS[form]), tmp_path / "told", warm=True)
    assert done.returncode == 0, done.stderr
    by_index, undivided, itself, divided = done.stdout.splitlines()
    assert by_index == printed(list(range(3, 100)))
    assert undivided == printed([v for v in range(3, 100) for _ in range(2)])
    assert itself == printed([start + i for i in range(32) for start in (3, 35, 67)])
    assert divided == printed([start + i for i in range(9) for start in range(3, 93, 9)])

    told: dict[str, set[tuple[int, ...]]] = {}
    for line in (tmp_path / "told").read_text().splitlines():
        name, *pair = json.loads(line)
        told.setdefault(name, set()).add(tuple(pair))
    assert told["by index"] == {((v - 3) % 2, v) for v in range(3, 100)}
    assert told["Undivided"] == {(0, 3, 100), (1, 3, 100)}
    assert told["itself"] == {(0, 3, 35), (1, 35, 67), (2, 67, 99)}
    assert told["Divided"] == {(k, 3 + 9 * k, 12 + 9 * k) for k in range(10)}

    assert "This DataLoader will create 10 worker processes in total" in done.stderr
    assert "the 2 workers all read the same samples of Undivided" in done.stderr
    assert done.stderr.count("all read the same samples") == 1


class Stream(IterableDataset[int]):
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def __iter__(self) -> Any:
        return iter(range(self.start, self.end))


@pytest.mark.parametrize("workers", range(1, 11))
def test_an_automatic_division_loses_and_repeats_nothing(workers: int) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        loader = DataLoader(Stream(3, 100), num_workers=workers, shard="auto")
        assert [int(batch) for batch in loader] == list(range(3, 100))
