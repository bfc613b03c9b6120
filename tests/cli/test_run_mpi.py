"""`headrace run --engine mpi`: the same job under mpirun, on one machine and on several."""

import os
import re
import shlex
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from headrace.errors import BadOption
from headrace.launch.job import Job
from headrace.launch.mpi import MpirunXml, mpirun_command
from headrace.launch.output import TaggedOutput
from tests.cli.conftest import SHOW, WAIT, Headrace, Start, wait_for
from tests.depth import depth
from tests.programs import needs_mpirun

MPI = ("run", "--engine", "mpi", "--num-instances")


@pytest.mark.integrations
@needs_mpirun
def test_each_process_knows_its_rank_and_its_replicas(headrace: Headrace) -> None:
    code = SHOW + "w = World.detect(); r = replicas(); print(w.source, w.rank, w.ranks, w.local_rank, w.nodes, r)"
    done = headrace(*MPI, "4", "--num-replicas", "8", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[1,{rank}]<stdout>:headrace run {rank} 4 {rank} 1 Replicas(total=8, local=2, offset={2 * rank})"
        for rank in range(4)
    ]


@pytest.mark.integrations
@needs_mpirun
def test_any_program_runs_and_sees_its_arguments_as_they_were_typed(headrace: Headrace) -> None:
    done = headrace(*MPI, "2", "printf", "%s|", "a b", "$HOME", '"', "*", "-np\n")
    assert (done.returncode, done.stdout.count('a b|$HOME|"|*|-np')) == (0, 2), done.stderr


@pytest.mark.integrations
@needs_mpirun
def test_lines_are_whole_and_tagged_also_in_pieces_in_long_bursts_and_with_odd_bytes(
    headrace: Headrace, tmp_path: Path
) -> None:
    program = tmp_path / "noisy.py"
    program.write_text(
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "for n in range(100):\n"
        "    print(f'line {n}', f'of {rank} <&> é', rank * 5000)\n"
        "    sys.stderr.write(f'error {n}'); sys.stderr.write(f' of {rank}\\n')\n"
        "sys.stdout.write('no end')\n"
    )
    done = headrace(*MPI, "3", sys.executable, str(program))
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        tag = f"[1,{rank}]<stdout>:"
        mine = [line.removeprefix(tag) for line in done.stdout.splitlines() if line.startswith(tag)]
        assert mine == [*(f"line {n} of {rank} <&> é {str(rank) * 5000}" for n in range(100)), "no end"]
    assert Counter(done.stderr.splitlines()) == Counter(
        f"[1,{rank}]<stderr>:error {n} of {rank}" for n in range(100) for rank in range(3)
    )


@pytest.mark.integrations
@needs_mpirun
def test_of_hidden_ranks_what_they_say_to_stderr_is_shown(headrace: Headrace) -> None:
    script = "echo out; echo why $RANK >&2"
    done = headrace(*MPI, "3", "--only-output-from-instance", "1", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "[1,1]<stdout>:out\n")
    assert sorted(done.stderr.splitlines()) == [f"[1,{rank}]<stderr>:why {rank}" for rank in range(3)]


@pytest.mark.integrations
@needs_mpirun
@pytest.mark.parametrize(("how", "code"), [("exit 7", 7), ("kill -9 $$", 128 + 9)])
def test_a_rank_that_fails_ends_the_others_and_gives_its_exit_code(headrace: Headrace, how: str, code: int) -> None:
    done = headrace(*MPI, "2", "sh", "-c", f"sleep 1000 & [ $RANK = 1 ] && {how}; {WAIT}")
    assert done.returncode == code, done.stderr


@pytest.mark.integrations
@needs_mpirun
@pytest.mark.parametrize("number", depth([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_ends_everything(start: Start, number: signal.Signals) -> None:
    process = start(*MPI, "2", "sh", "-c", f"sleep 1000 & echo ready; {WAIT}")
    wait_for(process, "ready", 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err


@pytest.mark.integrations
@needs_mpirun
def test_a_killed_launcher_takes_its_ranks_with_it(start: Start) -> None:
    process = start(*MPI, "2", "sh", "-c", f"echo ready; {WAIT}")
    wait_for(process, "ready", 2)
    process.kill()
    process.wait(timeout=30)


@pytest.mark.integrations
@needs_mpirun
def test_a_reader_that_goes_away_ends_the_job(start: Start) -> None:
    process = start(*MPI, "2", "sh", "-c", "while :; do echo line; sleep 0.01; done")
    wait_for(process, "line", 1)
    assert process.stdout
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE


@pytest.mark.integrations
@needs_mpirun
def test_two_signals_end_a_job_whose_output_nobody_reads(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "written")
    # (More than the pipes hold; of more still, mpirun itself would die.)
    script = f"head -c 300000 /dev/zero | tr '\\0' x; echo; echo >{tmp_path}/written; {WAIT}"
    process = start(*MPI, "1", "sh", "-c", script)
    (tmp_path / "written").read_text()
    assert process.stdout
    process.stdout.read(10)
    mpirun = psutil.Process(process.pid).children()[0]
    process.send_signal(signal.SIGTERM)
    while mpirun.status() != psutil.STATUS_ZOMBIE:  # it waits for the launcher, which waits for its reader
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM


@pytest.mark.integrations
@needs_mpirun
def test_it_needs_no_torch(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    path = os.pathsep.join([str(tmp_path / "shadow"), str(Path(__file__).parents[2] / "src")])
    done = headrace(*MPI, "1", "echo", "hi", environ={"PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, "[1,0]<stdout>:hi\n"), done.stderr


@pytest.mark.integrations
@needs_mpirun
def test_torch_programs_form_a_group(headrace: Headrace) -> None:
    pytest.importorskip("torch", reason="the program needs torch")
    code = (
        "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1) * (d.get_rank() + 1); "
        "d.all_reduce(t); print(int(t)); d.destroy_process_group()"
    )
    done = headrace(*MPI, "2", sys.executable, "-c", code)
    assert sorted(done.stdout.splitlines()) == ["[1,0]<stdout>:3", "[1,1]<stdout>:3"], done.stderr


@pytest.mark.integrations
@needs_mpirun
def test_ranks_on_two_machines_are_placed_in_blocks_and_get_the_variables(headrace: Headrace, tmp_path: Path) -> None:
    # In place of ssh, a script that runs what it should run elsewhere here, without our environment.
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nshift\nexec env -i HOME="$HOME" PATH=/usr/bin:/bin sh -c "$*"\n')
    agent.chmod(0o755)
    there = f"--mca plm_rsh_agent {shlex.quote(str(agent))} --mca plm_rsh_no_tree_spawn 1 -x COLOUR"
    script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $HEADRACE_RUN $COLOUR"
    done = headrace(
        "run", "--host", "127.0.0.2,127.0.0.3", "--num-instances", "4", "--mpi-global-args", there, "sh", "-c", script,
        environ={"COLOUR": "red"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[1,{rank}]<stdout>:{rank} 4 {rank % 2} 2 {rank // 2} 2 {rank}/4 red" for rank in range(4)
    ]


# --- the command, without running it ---------------------------------------------------------------------------------


@pytest.fixture
def _mpirun_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/lib/here")


@pytest.mark.usefixtures("_mpirun_is_there")
def test_ranks_are_spread_over_hosts_and_get_what_is_needed_there() -> None:
    job = Job(program=("python", "train.py"), host="h0,h1", num_instances=4, mpi_global_args="-x 'C=d e'")
    command = mpirun_command(job)
    words = " ".join(command)
    assert words.startswith("/opt/mpirun --xml --bind-to none --map-by slot --oversubscribe")
    assert "--host h0:2,h1:2" in words
    assert command[command.index("-np") + 1] == "4"
    assert "C=d e" in command
    assert command[-3:] == ["sh", "python", "train.py"]
    passed_on = [command[at + 1] for at, word in enumerate(command) if word == "-x"]
    assert {"PATH", "LD_LIBRARY_PATH", "HEADRACE_JOB", "HEADRACE_NUM_LOCAL_REPLICAS", "MASTER_ADDR=h0"} <= {*passed_on}
    assert any(re.fullmatch(r"MASTER_PORT=\d+", name) for name in passed_on)


@pytest.mark.usefixtures("_mpirun_is_there")
def test_what_mpirun_would_misread_is_refused() -> None:
    with pytest.raises(BadOption, match="':'"):
        mpirun_command(Job(program=("sh", "-c", ":", ":"), engine="mpi"))
    with pytest.raises(BadOption, match="No closing quotation"):
        mpirun_command(Job(program=("true",), engine="mpi", mpi_global_args="-x 'A"))


def test_without_mpirun_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BadOption, match="openmpi-bin"):
        mpirun_command(Job(program=("true",), engine="mpi"))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_pieces_of_xml_are_put_together_however_they_are_cut(size: int, tmp_path: Path) -> None:
    xml = (
        b'<mpirun>\n<stdout rank="1">a &lt;b&gt; &amp;&#195;&#169;&#000;&#010;</stdout>\n'
        b"<stderr>mpirun says&#010;</stderr>\n"
        b'<stderr rank="0">oh</stderr><stdout rank="1">end</stdout></mpirun>\n'
    )
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        parser = MpirunXml(TaggedOutput(out.fileno(), err.fileno()))
        for start in range(0, len(xml), size):
            parser.feed(xml[start : start + size])
        parser.finish()
    assert (tmp_path / "out").read_bytes() == "[1,1]<stdout>:a <b> &é\0\n[1,1]<stdout>:end\n".encode()
    assert (tmp_path / "err").read_bytes() == b"mpirun says\n[1,0]<stderr>:oh\n"
