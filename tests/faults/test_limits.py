"""What a loader takes of the machine stays bounded: descriptors, memory, maps."""

import os
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.engine.wire import fold
from tests.conftest import RunScript
from tests.depth import DEPTH
from tests.laws.pipes import Numbers

HOW: dict[str, Any] = {"workers": 2, "start_method": "fork", "timeout": 5}


def test_a_filter_that_lets_little_through_holds_little_memory() -> None:
    pipe = Pipe.of(Numbers(3000 * 32)).filter(lambda x: x % 3000 == 0).batch(32)
    with Loader(pipe, **HOW) as loader:
        assert [len(b) for b in loader] == [32]
        assert loader.stats().slots < 32 + 64


def test_a_batch_of_samples_from_hundreds_of_slots_is_made_in_a_worker() -> None:
    pipe = Pipe.of(Numbers(300 * 300 * 2)).filter(lambda x: x % 300 == 0).batch(300).map(len)
    with Loader(pipe, **HOW) as loader:
        assert list(loader) == [300, 300]


def test_epochs_that_are_left_early_do_not_add_up() -> None:
    pipe = Pipe.of(Numbers(4000)).filter(lambda x: x % 3 > 0).batch(16)

    def maps(loader: Loader[Any]) -> int:
        (workers,) = loader._pool.all()
        with open(f"/proc/{workers._workers[0].started.pid}/maps") as lines:
            return sum("headrace" in line for line in lines)

    with Loader(pipe, **HOW) as loader:
        for _ in range(100):  # by then it is known that tickets are short, and more are under way
            next(iter(loader))
        first = loader.stats().bytes, maps(loader)
        for _ in range(200):
            next(iter(loader))
        assert loader.stats().bytes <= 2 * first[0]
        assert maps(loader) <= 2 * first[1]


def test_all_batches_of_an_epoch_can_be_held_with_few_descriptors(run_script: RunScript) -> None:
    done = run_script("""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        import numpy as np
        from headrace import Loader, Pipe
        with Loader(Pipe.of(list(range(1000))).map(lambda i: np.full(4000, i)).batch(1).collate(),
                    workers=2, start_method="fork", timeout=10) as loader:
            held = list(loader)
        assert len(held) == 1000 and all((batch == i).all() for i, batch in enumerate(held))
    """)
    assert done.returncode == 0, done.stderr


def test_the_limit_of_a_file_size_is_an_error_that_says_what_to_do(run_script: RunScript) -> None:
    done = run_script("""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        import numpy as np
        from headrace import Loader, Pipe
        with Loader(Pipe.of(list(range(10))).map(lambda i: np.full(400_000, i)).batch(1).collate(),
                    workers=2, start_method="fork", timeout=10) as loader:
            try:
                list(loader)
            except OSError as error:
                print(error)
    """)
    assert "no room for" in done.stdout, done.stderr
    assert "make batches smaller" in done.stdout


def test_descriptors_are_given_back_when_the_server_refuses_to_fork(no_new_fds: Any, tmp_path: Any) -> None:
    import sys

    (tmp_path / "threaded_module_of_a_test.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "def same(x): return x\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import threaded_module_of_a_test as module  # type: ignore[import-not-found]

        with Loader(Pipe.of(Numbers(8)).map(module.same).batch(2), workers=2, start_method="forkserver") as loader:
            assert [x for b in loader for x in b] == list(range(8))
    finally:
        sys.path.remove(str(tmp_path))
    assert os.path.exists("/proc/self/fd")


def test_too_few_descriptors_are_an_error_that_names_the_limit_to_raise(run_script: RunScript) -> None:
    done = run_script("""
        import os, resource
        import numpy as np
        from headrace import Loader, Pipe

        class Opens:
            def __len__(self):
                return 400
            def __getitem__(self, i):
                kept.append(open(os.devnull))
                return i

        kept, used = [], len(os.listdir("/proc/self/fd"))
        big = Pipe.of(range(400)).map(lambda i: np.full(50_000, i)).batch(4)
        cases = [(room, big, {"workers": 2, "start_method": "fork"}) for room in (3, 6, 10, 14, 20, 40)]
        cases += [(60, Pipe.of(Opens()).batch(4), how) for how in ({"workers": 1, "start_method": "fork"}, {})]
        for room, pipe, how in cases:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, 4096))
            try:
                with Loader(pipe, timeout=30, **how) as loader:
                    held = list(loader)
            except OSError as error:
                assert "ulimit -n" in "".join([str(error), *getattr(error, "__notes__", ())]), (room, error)
            else:
                raise AssertionError(room)
    """)
    assert done.returncode == 0, done.stderr


HUGE = 2**31 + 8


class HugeBytes:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> bytes:
        return bytes(HUGE) if i else b"small"


def test_bytes_of_more_than_2_gigabytes_are_left_to_what_can_carry_them() -> None:
    # (A block of zeros that nobody touches costs no memory.)
    assert fold.pack(bytes(HUGE)) is None
    assert fold.pack((np.zeros(4), bytes(HUGE))) is None


@pytest.mark.timeout(600)
@pytest.mark.skipif(DEPTH != "deep", reason="takes 9 GB of memory: scripts/test --deep")
def test_bytes_of_more_than_2_gigabytes_come_through_a_worker() -> None:
    with Loader(Pipe.of(HugeBytes()), workers=1, start_method="fork") as loader:
        samples = iter(loader)
        assert next(samples) == b"small"
        huge = next(samples)
        assert (len(huge), huge.count(0)) == (HUGE, HUGE)


def test_torch_computes_in_a_worker_that_was_forked_after_torch_has_computed(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    done = run_script("""
        import warnings
        import torch
        from headrace import Loader, Pipe
        warnings.simplefilter("ignore")

        def quantized(i):
            return torch.quantize_per_tensor(torch.ones(1_000_000) * i, 0.1, 10, torch.qint8)

        torch.set_num_threads(2)
        quantized(1)  # from now on this process has threads, which no forked one will have
        with Loader(Pipe.of(range(3)).map(quantized), workers=1, start_method="fork", timeout=40) as loader:
            assert [float(sample.dequantize().mean()) for sample in loader] == [0.0, 1.0, 2.0]
    """)
    assert done.returncode == 0, done.stderr
