"""`headrace run --engine mpi`: the same job under mpirun."""

import os
import re
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import BadOption
from headrace.launch import mpi as launch_mpi
from headrace.launch.job import Job
from headrace.launch.mpi import MpirunXml, mpirun_command
from headrace.launch.output import TaggedOutput
from tests.cli.conftest import SHOW, WAIT, Headrace, Start, wait_for
from tests.depth import depth
from tests.programs import needs_mpirun


@pytest.mark.integrations
@needs_mpirun
def test_each_process_knows_its_rank_and_its_replicas(headrace: Headrace) -> None:
    code = SHOW + "w = World.detect(); r = replicas(); print(w.rank, w.ranks, w.local_rank, w.local_ranks, w.nodes, r)"
    options = ("--engine", "mpi", "--num-replicas", "8", "--num-instances", "4", "--env", "A=1;2")
    done = headrace("run", *options, sys.executable, "-c", code + "; assert os.environ['A'] == '1;2'")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[rank {rank}] {rank} 4 {rank} 4 1 Replicas(total=8, local=2, offset={2 * rank})" for rank in range(4)
    ]


@pytest.mark.integrations
@needs_mpirun
def test_lines_are_whole_and_tagged_also_with_bars_long_bursts_and_odd_bytes(
    headrace: Headrace, tmp_path: Path
) -> None:
    program = tmp_path / "noisy.py"
    program.write_text(
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "for n in range(100):\n"
        "    print(f'line {n} of {rank} <&> é ' + rank * 5000)\n"
        "    sys.stderr.write(f'error {n}'); sys.stderr.write(f' of {rank}\\n')\n"
        "for n in range(50):\n"
        "    sys.stdout.write(f'\\rbar {n}'); sys.stdout.flush()\n"
        "print()\n"
        "sys.stdout.write('no end')\n"
    )
    done = headrace("run", "--engine", "mpi", "--num-instances", "3", sys.executable, str(program))
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        mine = [line.partition("] ")[2] for line in done.stdout.splitlines() if line.startswith(f"[rank {rank}] ")]
        assert mine[:100] == [f"line {n} of {rank} <&> é " + str(rank) * 5000 for n in range(100)]
        assert mine[-2:] == ["bar 49", "no end"]
    assert Counter(done.stderr.splitlines()) == Counter(
        f"[rank {rank}] error {n} of {rank}" for n in range(100) for rank in range(3)
    )


@pytest.mark.integrations
@needs_mpirun
def test_the_first_failure_ends_all_gives_its_code_and_is_never_hidden(headrace: Headrace) -> None:
    script = f"echo out; echo why $RANK >&2; [ $RANK = 1 ] && exit 7; {WAIT}"
    options = ("--engine", "mpi", "--num-instances", "3", "--only-output-from-instance", "0")
    done = headrace("run", *options, "sh", "-c", script)
    assert (done.returncode, done.stdout) == (7, "[rank 0] out\n")
    assert "[rank 1] why 1\n" in done.stderr
    # mpirun does not always say which rank it was; then the others are shown too
    assert re.search(r"headrace: (rank 1|a rank) failed with exit code 7; the others were ended\n$", done.stderr)
    assert ("why 2" in done.stderr) <= ("a rank failed" in done.stderr)


@pytest.mark.integrations
@needs_mpirun
def test_a_rank_that_dies_by_a_signal_gives_128_plus_its_number(headrace: Headrace) -> None:
    done = headrace(
        "run", "--engine", "mpi", "--num-instances", "2", "sh", "-c", f"[ $RANK = 1 ] && kill -9 $$; {WAIT}"
    )
    assert done.returncode == 128 + 9
    assert re.search(r"headrace: (rank 1 was ended by signal 9|a rank failed with exit code 137)", done.stderr)


@pytest.mark.integrations
@needs_mpirun
@pytest.mark.parametrize("number", depth([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_everything(start: Start, number: signal.Signals) -> None:
    process = start("run", "--engine", "mpi", "--num-instances", "2", "sh", "-c", f"sleep 1000 & echo ready; {WAIT}")
    wait_for(process, "ready", 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err


@pytest.mark.integrations
@needs_mpirun
def test_a_killed_launcher_takes_its_ranks_with_it(start: Start) -> None:
    process = start("run", "--engine", "mpi", "--num-instances", "2", "sh", "-c", f"echo ready; {WAIT}")
    wait_for(process, "ready", 2)
    process.kill()
    process.wait(timeout=30)


@pytest.mark.integrations
@needs_mpirun
def test_it_needs_no_torch(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    path = os.pathsep.join([str(tmp_path / "shadow"), str(Path(__file__).parents[2] / "src")])
    done = headrace("run", "--engine", "mpi", "--numa-aware", "echo", "hi", environ={"PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, "[rank 0] hi\n"), done.stderr


@pytest.mark.integrations
@needs_mpirun
def test_torch_programs_form_a_group(headrace: Headrace) -> None:
    pytest.importorskip("torch", reason="the program needs torch")
    code = (
        "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1) * (d.get_rank() + 1); "
        "d.all_reduce(t); print(int(t)); d.destroy_process_group()"
    )
    done = headrace("run", "--engine", "mpi", "--num-instances", "2", sys.executable, "-c", code)
    assert sorted(done.stdout.splitlines()) == ["[rank 0] 3", "[rank 1] 3"], done.stderr


# --- the command, without running it ---------------------------------------------------------------------------------


@pytest.fixture
def _mpirun_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/lib/here")


@pytest.mark.usefixtures("_mpirun_is_there")
def test_ranks_are_spread_over_hosts_in_blocks() -> None:
    job = Job(
        program=("python", "train.py"),
        host="h[0-1]",
        num_instances=4,
        num_replicas=8,
        host_subnet="10.1.0.0/16",
        mpi_global_args="--mca a b",
        mpi_local_args="-x 'C=d e'",
    )
    head, *sections = " ".join(mpirun_command(job)).split(" -np 1 ")
    assert head.startswith("/opt/mpirun --xml --bind-to none --map-by slot --oversubscribe")
    assert "--host h0:2,h1:2 --mca btl_tcp_if_include 10.1.0.0/16 --mca oob_tcp_if_include 10.1.0.0/16" in head
    assert head.endswith("--mca a b")
    assert len(sections) == 4
    for rank, section in enumerate(sections):
        said = dict(word.split("=", 1) for word in section.split("env ")[1].split() if "=" in word)
        assert section.startswith("-x C=d e /usr/bin/env ")
        assert said["LD_LIBRARY_PATH"] == "/lib/here"
        assert (said["RANK"], said["LOCAL_RANK"], said["GROUP_RANK"]) == (str(rank), str(rank % 2), str(rank // 2))
        assert (said["WORLD_SIZE"], said["LOCAL_WORLD_SIZE"], said["GROUP_WORLD_SIZE"]) == ("4", "2", "2")
        assert (said["HEADRACE_REPLICA_INDEX_OFFSET"], said["MASTER_ADDR"]) == (str(2 * rank), "h0")
        assert re.search(r"python train\.py( :)?$", section)


@pytest.mark.usefixtures("_mpirun_is_there")
def test_what_mpirun_would_misread_is_refused() -> None:
    with pytest.raises(BadOption, match="':'"):
        mpirun_command(Job(program=("sh", "-c", ":", ":"), engine="mpi"))


def test_without_mpirun_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BadOption, match="openmpi-bin"):
        mpirun_command(Job(program=("true",), engine="mpi"))


def test_pieces_of_xml_are_put_together_however_they_are_cut(tmp_path: Path) -> None:
    xml = (
        b'<mpirun>\n<stdout rank="1">a &lt;b&gt; &amp;&#195;&#169;&#000;&#010;</stdout>\n'
        b"<stderr>mpirun says&#010;</stderr>\n"
        b'<stderr rank="0">oh</stderr><stdout rank="1">end</stdout></mpirun>\n'
    )
    seen: set[tuple[bytes, bytes]] = set()
    for size in (1, 2, 3, 7, 50, 1000):
        with (tmp_path / "out").open("wb+") as out, (tmp_path / "err").open("wb+") as err:
            parser = MpirunXml(TaggedOutput(out, err))
            for start in range(0, len(xml), size):
                parser.feed(xml[start : start + size])
            parser.finish()
            seen.add(((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()))
    out_text = "[rank 1] a <b> &é\0\n[rank 1] end\n".encode()
    assert seen == {(out_text, b"mpirun says\n[rank 0] oh\n")}


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("  Process name: [[28822,1],1]\n  Exit code:    7\n", "1"),
        ("mpirun noticed that process rank 12 with PID 0 on node vm exited on signal 9 (Killed).", "12"),
    ],
)
def test_the_rank_that_failed_is_read_from_what_mpirun_says(text: str, rank: str) -> None:
    found = launch_mpi._FAILED.search(text)
    assert found
    assert rank in found.groups()
