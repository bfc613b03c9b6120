"""PT-01, PT-30: real processes. Every replica gets its own part, and whatever ends a program, nothing stays."""

import json
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import RunScript
from tests.depth import depth

RUN = "import sys; from headrace.cli import main; sys.exit(main(sys.argv[1:]))"

STREAMS = """
    import json, sys
    from pathlib import Path
    from headrace.replicas import DataLoader, LaunchedOptions, popdist, split

    options = LaunchedOptions().randomSeed(7)
    options.Training.gradientAccumulation(int(sys.argv[2]))
    loader = DataLoader(options, range(int(sys.argv[3])), batch_size=32, shuffle=True, num_workers=1)
    streams = [[] for _ in range(options.replication_factor)]
    for batch in loader:
        for stream, parts in zip(streams, split(batch, options), strict=True):
            stream += [part.tolist() for part in parts]
    for number, stream in enumerate(streams, popdist.getReplicaIndexOffset()):
        Path(sys.argv[1], f"{number}.json").write_text(json.dumps(stream))
    loader.terminate()
"""


def launched(run_script: RunScript, tmp_path: Path, code: str, *args: object) -> str:
    """The output of a program on 4 processes with 2 replicas each."""
    program = tmp_path / "replicas.py"
    program.write_text(textwrap.dedent(code))
    run = ["run", "--num-replicas", 8, "--num-instances", 4]
    done = run_script(RUN, *run, sys.executable, program, *args, timeout=120, warm=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("accumulation", "batches"), depth([(4, 192)], [(1, 195), (4, 192)]))
def test_eight_replicas_on_four_processes_read_disjoint_streams(
    run_script: RunScript, tmp_path: Path, accumulation: int, batches: int
) -> None:
    told = launched(run_script, tmp_path, STREAMS, tmp_path, accumulation, 50_000)
    streams = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(8)]
    assert [len(stream) for stream in streams] == [batches] * 8
    assert {len(batch) for stream in streams for batch in stream} == {32}
    everything = [sample for stream in streams for batch in stream for sample in batch]
    assert len(everything) == len(set(everything)) == 8 * batches * 32
    assert told.count("every epoch leaves out") == 1, "one process says it for all"
    if accumulation == 1:
        assert "leaves out 2 batches and 16 samples" in told


ENDING = """
    import os, signal, sys
    from headrace.replicas import DataLoader, Options

    loader = DataLoader(Options(), range(10_000), batch_size=4, num_workers=2, mode=sys.argv[1])
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    print("loading", flush=True)
    how = sys.argv[2]
    if how == "exception":
        raise LookupError("of the training loop")
    if how != "end":
        os.kill(os.getpid(), getattr(signal, how))
"""


@pytest.mark.parametrize("mode", depth(["Async"], ["Sync", "Async"]))
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("end", 0),
        ("exception", 1),
        ("SIGINT", -signal.SIGINT),
        ("SIGTERM", -signal.SIGTERM),
        ("SIGKILL", -signal.SIGKILL),
    ],
)
def test_whatever_ends_a_program_no_process_stays(run_script: RunScript, mode: str, how: str, code: int) -> None:
    done = run_script(ENDING, mode, how)  # fails by itself if a process outlives the program
    assert (done.stdout, done.returncode) == ("loading\n", code), done.stderr
    if how == "exception":
        assert done.stderr.strip().endswith("LookupError: of the training loop")
