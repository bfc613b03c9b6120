"""`headrace run` with real processes: tags, exit codes, signals, restarts, nothing left."""

import os
import re
import shlex
import signal
import socket
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from headrace.cli import main
from headrace.launch.mpi import free_port
from tests.cli.conftest import SHOW, WAIT, Headrace, Shell, Start, children_until, wait_for
from tests.depth import depth

pytest.importorskip("torch", reason="the torch engine needs torch")


def lines_of(text: str, rank: int, stream: str = "stdout") -> list[str]:
    tag = f"[1,{rank}]<{stream}>:"
    return [line.removeprefix(tag) for line in text.splitlines() if line.startswith(tag)]


def test_each_process_knows_its_rank_and_its_replicas(headrace: Headrace) -> None:
    code = SHOW + "w = World.detect(); r = replicas(); print(w.source, w.rank, w.ranks, w.local_rank, w.nodes, r)"
    done = headrace("run", "--num-replicas", "8", "--num-instances", "4", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[1,{rank}]<stdout>:headrace run {rank} 4 {rank} 1 Replicas(total=8, local=2, offset={2 * rank})"
        for rank in range(4)
    ]


def test_any_program_runs_and_sees_its_arguments_as_they_were_typed(headrace: Headrace) -> None:
    done = headrace("run", "--num-instances", "2", "echo", "hi", "$$", "${local_rank}", "--num-instances", "-v")
    words = "hi $$ ${local_rank} --num-instances -v"
    assert sorted(done.stdout.splitlines()) == [f"[1,{rank}]<stdout>:{words}" for rank in range(2)]
    assert (done.returncode, done.stderr) == (0, "")


# --- output ----------------------------------------------------------------------------------------------------------


def test_lines_are_whole_and_tagged_also_with_bars_and_long_bursts(headrace: Headrace, tmp_path: Path) -> None:
    program = tmp_path / "noisy.py"
    program.write_text(
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "for n in range(300):\n"
        "    print(f'line {n} of {rank} ' + rank * 300)\n"
        "    sys.stderr.write(f'error {n}'); sys.stderr.write(f' of {rank}\\n')\n"
        "for n in range(50):\n"
        "    sys.stdout.write(f'\\rbar {n}'); sys.stdout.flush()\n"
        "print()\n"
        "sys.stdout.write('no end')\n"
    )
    done = headrace("run", "--num-instances", "3", sys.executable, str(program))
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        mine = lines_of(done.stdout, rank)
        assert mine[:300] == [f"line {n} of {rank} " + str(rank) * 300 for n in range(300)]
        assert mine[-2:] == ["bar 49", "no end"]
    assert Counter(done.stderr.splitlines()) == Counter(
        f"[1,{rank}]<stderr>:error {n} of {rank}" for n in range(300) for rank in range(3)
    )
    assert all(re.match(r"\[1,[0-2]\]<stdout>:", line) for line in done.stdout.splitlines())


def test_lines_that_ranks_write_in_turns_and_in_pieces_stay_whole(headrace: Headrace, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    for path in (there, back):
        os.mkfifo(path)
    # Each rank writes half a line, then lets the other one write half of its own.
    script = (
        f"[ $RANK = 0 ] && exec 3>{there} 4<{back}; [ $RANK = 1 ] && exec 4<{there} 3>{back}; i=0; "
        "while [ $i -lt 20 ]; do [ $RANK = 1 ] && read go <&4; printf 'begin '; echo >&3; "
        "[ $RANK = 0 ] && read go <&4; echo end; i=$((i + 1)); done"
    )
    done = headrace("run", "--num-instances", "2", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[1,{rank}]<stdout>:begin end" for rank in (0, 1) for _ in range(20)]


def test_very_long_lines_and_odd_bytes_arrive_as_they_are(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        "import os, sys\n"
        "rank = os.environ['RANK'].encode()\n"
        "out = sys.stdout.buffer\n"
        "out.write(rank * 900_000 + b'\\n' + bytes(n for n in range(256) if n not in b'\\r\\n') + b'\\n')\n"
        "out.write(b'x' * 3_000_000)\n"
    )
    done = shell(f"RUN --num-instances 2 {shlex.quote(sys.executable)} long.py")
    assert done.returncode == 0, done.stderr
    for rank in (b"0", b"1"):
        tag = b"[1,%s]<stdout>:" % rank
        long, odd, *cut = [line.removeprefix(tag) for line in done.stdout.split(b"\n") if line.startswith(tag)]
        assert long == rank * 900_000
        assert odd == bytes(n for n in range(256) if n not in b"\r\n")
        assert b"".join(cut) == b"x" * 3_000_000
        assert max(map(len, cut)) == 1 << 20


def test_a_rank_may_close_its_output(headrace: Headrace) -> None:
    done = headrace("run", "--num-instances", "2", "sh", "-c", "echo first; exec >&- 2>&-; exit 0")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[1,0]<stdout>:first", "[1,1]<stdout>:first"]


def test_of_hidden_ranks_what_they_say_to_stderr_is_shown(headrace: Headrace, tmp_path: Path) -> None:
    said = tmp_path / "said"  # (The failure of one rank ends the others: it waits until the first has said something.)
    os.mkfifo(said)
    meet = f"[ $RANK = 0 ] && echo >{said} && exit 0; [ $RANK = 2 ] && read met <{said} && exit 5; "
    script = "echo out $RANK; echo why $RANK >&2; " + meet + WAIT
    done = headrace("run", "--num-instances", "3", "--only-output-from-instance", "0", "sh", "-c", script)
    assert done.returncode == 5
    assert done.stdout == "[1,0]<stdout>:out 0\n"
    assert lines_of(done.stderr, 0, "stderr") == ["why 0"]
    assert lines_of(done.stderr, 2, "stderr") == ["why 2"]


@pytest.mark.parametrize(
    ("script", "out", "code", "err"),
    [
        ("{ RUN yes; echo $? >code; } | head -n 3", "[1,0]<stdout>:y\n" * 3, 128 + signal.SIGPIPE, ""),
        ("RUN yes >/dev/full; echo $? >code", "", 2, "No space left on device"),
        ("RUN echo hi >&-; echo $? >code", "", 0, ""),
        ("ulimit -n 64; RUN --num-instances 40 true; echo $? >code", "", 2, "ranks cannot be started"),
        ("RUN --num-instances 2 cat <&-; echo $? >code", "", 0, ""),
        ("echo typed | { RUN --num-instances 2 cat; echo $? >code; }", "[1,0]<stdout>:typed\n", 0, ""),
    ],
)
def test_it_behaves_in_a_shell(shell: Shell, tmp_path: Path, script: str, out: str, code: int, err: str) -> None:
    done = shell(script)
    assert (done.stdout.decode(), int((tmp_path / "code").read_text())) == (out, code), done.stderr
    assert err in done.stderr.decode()
    assert b"Traceback" not in done.stderr


# --- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("[ $RANK = 2 ] && exit 7", 7, "rank 2 failed with exit code 7"),
        ("[ $RANK = 1 ] && exit 255", 255, "rank 1 failed with exit code 255"),
        ("[ $RANK = 1 ] && kill -9 $$", 128 + 9, "rank 1 was ended by signal 9, SIGKILL"),
        ("[ $RANK = 0 ] && kill -40 $$", 128 + 40, "rank 0 was ended by signal 40"),
        # the others end in good order before it
        ("[ $RANK = 2 ] || exit 0; cat end; exit 3", 3, "rank 2 failed with exit code 3"),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_gives_its_exit_code(
    headrace: Headrace, tmp_path: Path, script: str, code: int, said: str
) -> None:
    os.mkfifo(tmp_path / "end")
    done = headrace("run", "--num-instances", "3", "sh", "-c", f"[ $RANK = 0 ] && (echo >end) & {script}; {WAIT}")
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(f"headrace: {said}")
    assert done.stderr.endswith("; the others were ended\n")


def test_a_job_of_one_rank_speaks_of_no_others(headrace: Headrace) -> None:
    done = headrace("run", "sh", "-c", "exit 4")
    assert (done.returncode, done.stderr) == (4, "headrace: rank 0 failed with exit code 4\n")


def test_ranks_are_started_again_after_a_failure_without_what_the_first_left(headrace: Headrace) -> None:
    script = (
        'ps -eo args | grep -c "^slee[p] 9876"; sleep 9876 & '
        'echo attempt $TORCHELASTIC_RESTART_COUNT; [ "$TORCHELASTIC_RESTART_COUNT" = 2 ] || exit 4'
    )
    done = headrace("run", "--num-instances", "1", "--max-restarts", "2", "sh", "-c", script)
    assert lines_of(done.stdout, 0) == ["0", "attempt 0", "0", "attempt 1", "0", "attempt 2"]
    assert done.returncode == 0
    assert done.stderr.count("headrace: all ranks are started again") == 2
    assert "headrace: all ranks are started again (2 of 2)\n" in done.stderr
    assert "failed (exitcode: 4)" in done.stderr
    spent = headrace("run", "--num-instances", "1", "--max-restarts", "1", "sh", "-c", script)
    assert spent.returncode == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(start: Start, number: signal.Signals) -> None:
    process = start("run", "--num-instances", "2", "sh", "-c", f"sleep 1000 & echo ready; {WAIT}")
    wait_for(process, "ready", 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert err == ""


def test_a_killed_launcher_takes_its_ranks_with_it(start: Start) -> None:
    process = start("run", "--num-instances", "2", "sleep", "1000")
    pids = children_until(process, 2)
    process.kill()
    process.communicate(timeout=30)
    assert pids  # the fixture checks that nothing is left


def test_a_job_inside_a_job_ends_with_the_outer_one(start: Start) -> None:
    inner = [sys.executable, "-m", "headrace.cli", "run", "sh", "-c", f"echo ready; {WAIT}"]
    process = start("run", *inner)
    wait_for(process, "[1,0]<stdout>:[1,0]<stdout>:ready", 1)
    process.kill()
    process.communicate(timeout=30)


def test_a_rank_may_finish_its_work_on_ctrl_c(start: Start) -> None:
    script = "trap 'echo saved; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    process = start("run", "--num-instances", "2", "sh", "-c", script)
    wait_for(process, "ready", 2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.count("saved") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_for_stubborn_ranks(start: Start, number: signal.Signals) -> None:
    script = "trap 'echo not yet' INT TERM; echo ready; while :; do sleep 0.05; done"
    process = start("run", "--num-instances", "2", "sh", "-c", script)
    wait_for(process, "ready", 2)
    process.send_signal(number)
    wait_for(process, "not yet", 2)
    process.send_signal(number)
    process.communicate(timeout=15)  # torch alone would wait for 30 seconds, twice
    assert process.returncode == 128 + number


def test_ranks_that_ignore_a_failure_of_another_are_ended_by_two_signals(start: Start) -> None:
    script = "[ $RANK = 1 ] && exit 3; trap 'echo not yet' TERM; while :; do sleep 0.05; done"
    process = start("run", "--num-instances", "2", "sh", "-c", script)
    wait_for(process, "not yet", 1)
    process.send_signal(signal.SIGTERM)
    wait_for(process, "not yet", 1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=15)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_terminal_that_closes_does_not_end_what_nohup_started(shell: Shell, tmp_path: Path) -> None:
    for name in ("ready", "go"):
        os.mkfifo(tmp_path / name)
    script = "nohup RUN sh -c 'echo >ready; cat go; exit 5' & read line <ready; kill -HUP $!; echo on >go; wait $!"
    done = shell(script)
    assert (done.returncode, done.stdout) == (5, b"[1,0]<stdout>:on\n"), done.stderr


@pytest.mark.parametrize("leave", ["sleep 1000 & echo started", "setsid sleep 1000 & echo started"])
def test_what_ranks_leave_running_is_ended(headrace: Headrace, leave: str) -> None:
    done = headrace("run", "--num-instances", "2", "sh", "-c", leave)
    assert (done.returncode, done.stdout.count("started")) == (0, 2)


def test_a_reader_that_does_not_read_does_not_keep_a_job_alive(start: Start) -> None:
    process = start("run", "--num-instances", "2", "sh", "-c", "echo ready; exec yes")
    wait_for(process, "ready", 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM


def test_nor_does_it_after_a_failure(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "written")
    script = f"echo 1 >{tmp_path}/written; head -c 60000 /dev/zero | tr '\\0' '\\n'; exit 3"
    process = start("run", "sh", "-c", script)  # with its tags, it is more than a pipe holds
    (tmp_path / "written").read_text()
    launcher = psutil.Process(process.pid)
    while launcher.children():
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM


def test_a_program_that_does_not_exist_is_said_at_once(headrace: Headrace) -> None:
    done = headrace("run", "surely-no-such-program")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "headrace: surely-no-such-program: there is no such program\n"


def test_a_python_file_is_not_a_program_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text("print(1)")
    assert main(["run", "--num-instances", "2", str(file), "--fast"]) == 2
    assert capsys.readouterr().err.endswith(f"; write: headrace run ... python {file} --fast\n")


def test_two_launchers_meet_and_make_one_job(start: Start) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    script = "echo $RANK of $WORLD_SIZE node $GROUP_RANK replicas $HEADRACE_NUM_LOCAL_REPLICAS"
    options = ("--num-replicas", "8", "--num-instances", "4", "--nnodes", "2", "--rdzv-endpoint", endpoint)
    processes = [start("run", *options, "--node-rank", str(node), "sh", "-c", script) for node in range(2)]
    outs = [process.communicate(timeout=50) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outs
    for node, (out, _) in enumerate(outs):
        assert sorted(out.splitlines()) == [
            f"[1,{rank}]<stdout>:{rank} of 4 node {node} replicas 2" for rank in (2 * node, 2 * node + 1)
        ]


def test_machines_without_a_number_are_numbered_when_they_meet(start: Start) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    options = ("--num-instances", "2", "--nnodes", "1:2", "--rdzv-endpoint", endpoint)
    processes = [start("run", *options, "sh", "-c", "echo $RANK of $WORLD_SIZE") for _ in range(2)]
    outs = [process.communicate(timeout=50)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert all(re.search(r"\d of [12]", out) for out in outs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_machine_that_waits_for_the_others_can_be_ended(start: Start, number: signal.Signals) -> None:
    port = free_port()
    options = ("--num-instances", "2", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", f"127.0.0.1:{port}")
    process = start("run", *options, "true")
    launcher = psutil.Process(process.pid)
    while port not in {connection.laddr.port for connection in launcher.net_connections()}:
        os.sched_yield()
    process.send_signal(number)
    assert process.wait(timeout=30) in (-number, 128 + number)


def test_machines_that_cannot_meet_are_told_where(headrace: Headrace) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = headrace("run", "--nnodes", "1", "--node-rank", "0", "--rdzv-endpoint", where, "true")
    assert done.returncode == 2
    assert f"headrace run: the machines of the job do not reach each other at {where}: " in done.stderr


def test_variables_of_the_launcher_reach_the_ranks(headrace: Headrace) -> None:
    done = headrace("run", "-v", "sh", "-c", "echo $COLOUR $MASTER_ADDR", environ={"COLOUR": "red"})
    assert done.stdout == "[1,0]<stdout>:red localhost\n"
    assert "rendezvous" in done.stderr  # what torch says about it


def test_torch_programs_form_a_group(headrace: Headrace) -> None:
    code = (
        "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1) * (d.get_rank() + 1); "
        "d.all_reduce(t); print(int(t)); d.destroy_process_group()"
    )
    ranks = depth(1, 2)  # (each imports torch)
    done = headrace("run", "--num-instances", str(ranks), sys.executable, "-c", code)
    total = sum(range(1, ranks + 1))
    assert sorted(done.stdout.splitlines()) == [f"[1,{rank}]<stdout>:{total}" for rank in range(ranks)], done.stderr


def test_without_torch_the_error_names_the_extra(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    path = os.pathsep.join([str(tmp_path / "shadow"), str(Path(__file__).parents[2] / "src")])
    done = headrace("run", "true", environ={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "headrace[torch]" in done.stderr


# --- without processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--vipu-partition=x", "true"], "scheduler"),
        (["--vipu-server-host", "x", "true"], "scheduler"),
        (["--ipus-per-replica", "2", "true"], "leave it out"),
        (["--import-config", "job.toml", "true"], "options are not kept in files"),
        (["--export-config=job.toml", "true"], "options are not kept in files"),
        (["--tag-output", "true"], "lines are always tagged so"),
        (["--print-topology", "true"], "spread evenly"),
        (["--numa-aware=yes", "true"], "numactl"),
        (["--offline-mode", "true"], "CUDA_VISIBLE_DEVICES= headrace run"),
        (["--env", "A=1", "true"], "NAME=VALUE headrace run"),
        (["--hostfile", "f", "true"], "--host h0,h1"),
        (["--host-subnet", "10.1.0.0/16", "true"], "GLOO_SOCKET_IFNAME"),
        (["--rdzv-id", "x", "true"], "--rdzv-endpoint"),
        ([], "no program to run"),
        (["--num-instances", "2", "--"], "no program to run"),
        (["--num-instances"], "expected one argument"),
        (["--num-instances", "two", "true"], "invalid int value: 'two'"),
        (["--num-instance", "2", "true"], "--num-instance; did you mean '--num-instances'?"),
        (["--num-replica=4", "true"], "--num-replica; did you mean '--num-replicas'?"),
        (["-v", "--max-restarts", "1", "--nodes", "4", "true"], "--nodes; did you mean '--nnodes'?"),
        (["--qqq", "true"], "no option --qqq; see --help"),
    ],
)
def test_what_cannot_be_done_is_refused(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *args]) == 2
    assert said in capsys.readouterr().err
