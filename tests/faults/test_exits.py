"""`sys.exit()` in a worker does not end the training program in silence: it is an error of the program, in every door.

Other packages (command lines, launchers, licence checks) call it as well as users do. Without workers it is what it is
in plain Python; `test_own_exceptions` has that, and the kinds of workers.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from headrace import Loader, Pipe
from headrace.datapipes.iter import IterableWrapper
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.services import InProcessReadingService, MultiProcessingReadingService
from headrace.doors.replicas.loader import DataLoader as ReplicasLoader
from headrace.doors.replicas.options import Options
from headrace.doors.torch.loader import DataLoader
from tests.conftest import RunScript
from tests.doors.swift_data import Numbers as SwiftNumbers
from tests.doors.swift_data import swift
from tests.faults.deadly import BAD, SIZE, Numbers, calls_sys_exit, init_calls_sys_exit


class Stream(IterableDataset[int]):
    """An iterable-style dataset."""

    def __iter__(self) -> Iterator[int]:
        return map(exits_at_the_bad_one, range(SIZE))


class SwiftExits(SwiftNumbers):
    def __getitem__(self, index: int) -> Any:
        return exits_at_the_bad_one(index)


class SwiftUnbuildable(SwiftNumbers):
    def __init__(self, count: int) -> None:
        sys.exit(5)


def exits_at_the_bad_one(x: int) -> int:
    return calls_sys_exit() if x == BAD else x  # type: ignore[no-any-return]


def exits_with_the_bad_one(samples: list[int]) -> list[int]:
    return calls_sys_exit() if BAD in samples else samples  # type: ignore[no-any-return]


def torchs(dataset: Any, **options: Any) -> Iterator[Any]:
    batches = iter(DataLoader(dataset, 4, num_workers=2, **options))
    try:
        yield from batches
    finally:
        batches._shutdown_workers()


def of_pipe(service: Any) -> Iterator[Any]:
    pipe: Any = IterableWrapper(range(SIZE))
    with DataLoader2(pipe.sharding_filter().map(exits_at_the_bad_one).batch(4), reading_service=service) as dl:
        yield from dl


def swifts(dataset: type, **options: Any) -> Iterator[Any]:
    with swift(dataset, SIZE, shuffle=False, **options) as loader:
        loader.start(0)
        yield from loader


def of_op(op: Callable[[Any], Any], **options: Any) -> Iterator[Any]:
    with Loader(Pipe.of(range(SIZE)).batch(4).map(op), workers=2, **options) as loader:
        yield from loader


def before_the_shard_point(service: Any) -> Iterator[Any]:
    pipe: Any = IterableWrapper(range(SIZE)).map(exits_at_the_bad_one).shuffle().sharding_filter()
    with DataLoader2(pipe, reading_service=service) as dl:
        yield from dl


PLACES: dict[str, Callable[[], Iterable[Any]]] = {
    "op": lambda: of_op(exits_with_the_bad_one),
    "worker_init": lambda: of_op(list, worker_init=init_calls_sys_exit),
    "worker_init of threads": lambda: of_op(list, worker_init=init_calls_sys_exit, kind="thread"),
    "DataLoader": lambda: torchs(Numbers(calls_sys_exit)),
    "DataLoader collate_fn": lambda: torchs(Numbers(), collate_fn=exits_with_the_bad_one),
    "DataLoader worker_init_fn": lambda: torchs(Numbers(), worker_init_fn=init_calls_sys_exit),
    "DataLoader iterable": lambda: torchs(Stream()),
    "DataLoader2": lambda: of_pipe(MultiProcessingReadingService(2, "fork")),
    "DataLoader2 per worker": lambda: of_pipe(MultiProcessingReadingService(2, "fork", sharding="per-worker")),
    "DataLoader2 thread": lambda: of_pipe(InProcessReadingService(4)),
    "DataLoader2 before the shard point": lambda: before_the_shard_point(MultiProcessingReadingService(2, "fork")),
    "SwiftLoader": lambda: swifts(SwiftExits),
    "SwiftLoader collate_fn": lambda: swifts(SwiftNumbers, collate_fn=exits_with_the_bad_one),
    "SwiftLoader dataset": lambda: swifts(SwiftUnbuildable),
    "replicas": lambda: ReplicasLoader(Options(), Numbers(calls_sys_exit), 4, num_workers=2, mode="Async"),
}


@pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the 2 workers all read the same samples:UserWarning")
@pytest.mark.parametrize("where", PLACES)
def test_an_exit_in_a_worker_is_an_error_that_names_where_it_was_called(where: str) -> None:
    with pytest.raises(RuntimeError, match=r"sys\.exit\([45]\) in a worker does not end") as caught:
        list(PLACES[where]())
    assert isinstance(caught.value.__cause__, SystemExit)
    named = r"while worker \d was starting" if where == "worker_init" or "init_fn" in where else "in (worker|thread) "
    assert any("headrace: " in note and re.search(named, note) for note in caught.value.__notes__)


@pytest.mark.parametrize("options", ["start_method='fork'", "kind='thread'", "start_method='server'"])
def test_a_program_with_an_exit_in_a_worker_ends_with_an_error(options: str, run_script: RunScript) -> None:
    done = run_script(f"""
        import sys
        from headrace import Loader, Pipe

        def read(x):
            return x if x != 5 else sys.exit()

        if __name__ == "__main__":
            for batch in Loader(Pipe.of(range(8)).map(read).batch(2), workers=1, {options}):
                print(batch, flush=True)
            print("trained to the end")
        """)
    assert done.returncode == 1
    assert done.stdout == "[0, 1]\n[2, 3]\n"
    assert "RuntimeError: sys.exit() in a worker does not end the program" in done.stderr
    assert "at position 5" in done.stderr
