"""What processes share, in a dataset: objects of multiprocessing, shared tensors; workers of every start method."""

import pytest

from tests.conftest import RunScript
from tests.depth import depth

SCRIPT = """
    import sys
    import torch
    import torch.multiprocessing as mp
    from headrace import DataLoader

    METHOD, WORKERS = sys.argv[1], int(sys.argv[2])


    class Shares(torch.utils.data.Dataset):
        def __init__(self, context, manager):
            self.value, self.array = context.Value("i", 0), context.Array("d", 8)
            self.lock, self.event, self.queue = context.Lock(), context.Event(), context.Queue()
            self.simple, self.known = context.SimpleQueue(), manager.dict()
            self.tensor = torch.zeros(8).share_memory_()
            self.part = self.tensor[4:]
            self.own = torch.arange(8.0)

        def __len__(self):
            return 8

        def __getitem__(self, index):
            with self.value.get_lock():
                self.value.value += 1
            with self.lock:
                self.array[index] += 1.5
                self.tensor[index] += index
            assert self.part.untyped_storage().data_ptr() == self.tensor.untyped_storage().data_ptr()
            self.event.set()
            self.queue.put(index)
            self.simple.put(index)
            self.known[index] = index * 2
            self.own[index] = -1
            return index


    if __name__ == "__main__":
        context = mp.get_context(METHOD)
        with mp.get_context("fork").Manager() as manager:
            data = Shares(context, manager)
            data.known["used before"] = 1
            data.queue.put("before")
            assert data.queue.get() == "before"
            # (A queue is written by a thread of its worker: it ends with the epoch, and what was put arrives.)
            loader = DataLoader(data, 1, num_workers=WORKERS, multiprocessing_context=METHOD)
            assert [b.item() for b in loader] == [*range(8)]
            assert data.value.value == 8
            assert data.array[:] == [1.5] * 8
            assert data.tensor.tolist() == [*range(8)], data.tensor
            assert data.event.is_set()
            assert sorted(data.queue.get() for _ in range(8)) == [*range(8)]
            assert sorted(data.simple.get() for _ in range(8)) == [*range(8)]
            assert {k: v for k, v in data.known.items() if k != "used before"} == {i: 2 * i for i in range(8)}
            assert data.own.tolist() == [*range(8)], "what is not shared is a copy"
        print("shared")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.deep)])
def test_objects_of_multiprocessing_are_shared_with_workers(method: str, run_script: RunScript) -> None:
    done = run_script(SCRIPT, method, depth(1 if method == "spawn" else 2, 2), warm=True)
    assert (done.stdout, done.returncode) == ("shared\n", 0), done.stderr


def test_a_lock_of_another_start_method_is_refused_by_its_path(run_script: RunScript) -> None:
    done = run_script("""
        import multiprocessing, warnings
        from headrace import DataLoader

        class Locked:
            def __init__(self):
                self.fine = multiprocessing.get_context("spawn").Lock()
                self.lock = multiprocessing.get_context("fork").Lock()

        if __name__ == "__main__":
            data = [Locked()]
            try:
                next(iter(DataLoader(data, num_workers=1, multiprocessing_context="spawn")))
            except TypeError as refused:
                print(refused)
    """, warm=True)  # fmt: skip
    assert "dataset[0].lock" in done.stdout, done.stdout + done.stderr
    assert "fork context" in done.stdout
