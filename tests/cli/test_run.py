"""`headrace run` with real processes: tags, exit codes, signals, restarts, nothing left."""

import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.launch.hosts import free_port
from headrace.launch.topology import topology
from tests.cli.conftest import SHOW, WAIT, Headrace, Start, children_until, wait_for
from tests.depth import depth

pytest.importorskip("torch", reason="the torch engine needs torch")


def test_each_process_knows_its_rank_and_its_replicas(headrace: Headrace) -> None:
    code = SHOW + "w = World.detect(); r = replicas(); print(w.source, w.rank, w.ranks, w.local_rank, w.nodes, r)"
    done = headrace("run", "--num-replicas", "8", "--num-instances", "4", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[rank {rank}] headrace run {rank} 4 {rank} 1 Replicas(total=8, local=2, offset={2 * rank})"
        for rank in range(4)
    ]


def test_any_program_runs_and_sees_its_arguments_as_they_were_typed(headrace: Headrace) -> None:
    done = headrace("run", "--num-instances", "2", "echo", "hi", "$$", "${local_rank}", "--num-instances", "-v")
    words = "hi $$ ${local_rank} --num-instances -v"
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] {words}" for rank in range(2)]
    assert (done.returncode, done.stderr) == (0, "")


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
        mine = [line.partition("] ")[2] for line in done.stdout.splitlines() if line.startswith(f"[rank {rank}] ")]
        assert mine[:300] == [f"line {n} of {rank} " + str(rank) * 300 for n in range(300)]
        assert mine[-2:] == ["bar 49", "no end"]
    assert Counter(done.stderr.splitlines()) == Counter(
        f"[rank {rank}] error {n} of {rank}" for n in range(300) for rank in range(3)
    )
    assert all(re.match(r"\[rank [0-2]\] ", line) for line in done.stdout.splitlines())


def test_the_first_failure_ends_all_and_gives_its_exit_code(headrace: Headrace) -> None:
    # rank 0 fails because rank 2 did, within the interval at which torch looks: the cause counts
    script = f"[ $RANK = 2 ] && exit 7; [ $RANK = 0 ] && read x < fifo; [ $RANK = 0 ] && exit 3; {WAIT}"
    first = "mkfifo fifo 2>/dev/null; " + script.replace("exit 7", "{ (sleep 0.02; echo > fifo) & exit 7; }")
    done = headrace("run", "--num-instances", "3", "sh", "-c", first)
    assert done.returncode == 7, done.stderr
    assert done.stderr.endswith("headrace: rank 2 failed with exit code 7; the others were ended\n")


def test_a_rank_that_dies_by_a_signal_gives_128_plus_its_number(headrace: Headrace) -> None:
    done = headrace("run", "--num-instances", "2", "sh", "-c", f"[ $RANK = 1 ] && kill -9 $$; {WAIT}")
    assert done.returncode == 128 + 9
    assert "rank 1 was ended by SIGKILL" in done.stderr


def test_a_failing_hidden_rank_still_says_why(headrace: Headrace, tmp_path: Path) -> None:
    said = tmp_path / "said"  # (The failure of one rank ends the others: it waits until the first has said something.)
    os.mkfifo(said)
    meet = f"[ $RANK = 0 ] && echo >{said} && exit 0; [ $RANK = 2 ] && read met <{said} && exit 5; "
    script = "echo out $RANK; echo why $RANK >&2; " + meet + WAIT
    done = headrace("run", "--num-instances", "3", "--only-output-from-instance", "0", "sh", "-c", script)
    assert done.returncode == 5
    assert done.stdout == "[rank 0] out 0\n"
    assert "[rank 0] why 0\n" in done.stderr
    assert "[rank 2] why 2\n" in done.stderr
    assert "why 1" not in done.stderr


def test_ranks_are_started_again_after_a_failure(headrace: Headrace) -> None:
    script = 'echo attempt $TORCHELASTIC_RESTART_COUNT; [ "$TORCHELASTIC_RESTART_COUNT" = 2 ] || exit 4'
    done = headrace("run", "--num-instances", "1", "--max-restarts", "2", "sh", "-c", script)
    assert done.stdout.splitlines() == [f"[rank 0] attempt {n}" for n in range(3)]
    assert (done.returncode, done.stderr.count("failed with exit code 4")) == (0, 2)
    assert "(2 of 2)" in done.stderr
    spent = headrace("run", "--num-instances", "1", "--max-restarts", "1", "sh", "-c", script)
    assert spent.returncode == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(start: Start, number: signal.Signals) -> None:
    process = start("run", "--num-instances", "2", "sh", "-c", f"sleep 1000 & echo ready; {WAIT}")
    wait_for(process, "ready", 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err


def test_a_killed_launcher_takes_its_ranks_with_it(start: Start) -> None:
    process = start("run", "--num-instances", "2", "sleep", "1000")
    pids = children_until(process, 2)
    process.kill()
    process.communicate(timeout=30)
    assert pids  # the fixture checks that nothing is left


def test_a_rank_may_finish_its_work_on_ctrl_c(start: Start) -> None:
    script = "trap 'echo saved; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    process = start("run", "--num-instances", "2", "sh", "-c", script)
    wait_for(process, "ready", 2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.count("saved") == 2


def test_a_second_ctrl_c_does_not_wait_for_stubborn_ranks(start: Start) -> None:
    script = "trap 'echo not yet' INT TERM; echo ready; while :; do sleep 0.05; done"
    process = start("run", "--num-instances", "2", "sh", "-c", script)
    wait_for(process, "ready", 2)
    process.send_signal(signal.SIGINT)
    wait_for(process, "not yet", 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=15)  # torch alone would wait for 30 seconds, twice
    assert process.returncode == 130


def test_children_that_ranks_leave_behind_are_ended(headrace: Headrace) -> None:
    done = headrace("run", "--num-instances", "2", "sh", "-c", "sleep 1000 & echo started")
    assert (done.returncode, done.stdout.count("started")) == (0, 2)


def test_a_reader_that_goes_away_ends_the_job(start: Start) -> None:
    process = start("run", "--num-instances", "2", "sh", "-c", "while :; do echo line; sleep 0.01; done")
    wait_for(process, "line", 1)
    assert process.stdout
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE


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
    script = "echo $RANK of $WORLD_SIZE node $GROUP_RANK replica $HEADRACE_REPLICA_INDEX_OFFSET"
    options = ("--num-replicas", "8", "--num-instances", "4", "--nnodes", "2", "--rdzv-endpoint", endpoint)
    processes = [start("run", *options, "--node-rank", str(node), "sh", "-c", script) for node in range(2)]
    outs = [process.communicate(timeout=50) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outs
    for node, (out, _) in enumerate(outs):
        assert sorted(out.splitlines()) == [
            f"[rank {rank}] {rank} of 4 node {node} replica {2 * rank}" for rank in (2 * node, 2 * node + 1)
        ]


def test_machines_without_a_number_are_numbered_when_they_meet(start: Start) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    options = ("--num-instances", "2", "--nnodes", "1:2", "--rdzv-endpoint", endpoint, "--rdzv-id", "test")
    processes = [start("run", *options, "sh", "-c", "echo $RANK of $WORLD_SIZE") for _ in range(2)]
    outs = [process.communicate(timeout=50)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert all(re.search(r"\d of [12]", out) for out in outs)


def test_options_reach_the_ranks(headrace: Headrace) -> None:
    options = ("--env", "COLOUR=red", "--env", "FROM_HERE", "--offline-mode=yes", "--host-subnet", "127.0.0.0/8")
    names = ("COLOUR", "FROM_HERE", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "MASTER_ADDR")
    script = "echo " + " ".join(f"{name}=$" + name for name in names)
    done = headrace("run", *options, "-v", "--numa-aware", "sh", "-c", script, environ={"FROM_HERE": "yes"})
    said = "COLOUR=red FROM_HERE=yes CUDA_VISIBLE_DEVICES= GLOO_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1"
    assert done.stdout == f"[rank 0] {said}\n"
    assert "headrace: rank 0: " in done.stderr
    assert "RANK=0" in done.stderr


def test_torch_programs_form_a_group(headrace: Headrace) -> None:
    code = (
        "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1) * (d.get_rank() + 1); "
        "d.all_reduce(t); print(int(t)); d.destroy_process_group()"
    )
    ranks = depth(1, 2)  # (each imports torch)
    done = headrace("run", "--num-instances", str(ranks), sys.executable, "-c", code)
    total = sum(range(1, ranks + 1))
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] {total}" for rank in range(ranks)], done.stderr


def test_without_torch_the_error_names_the_extra(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    path = os.pathsep.join([str(tmp_path / "shadow"), str(Path(__file__).parents[2] / "src")])
    done = headrace("run", "true", environ={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "headrace[torch]" in done.stderr


# --- without processes -----------------------------------------------------------------------------------------------


def test_the_topology_is_printed_and_needs_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["run", "--num-replicas", "8", "--num-instances", "2", "--print-topology"]
    assert main(args) == 0
    assert capsys.readouterr().out == topology(["localhost"], 2, 8) + "\n"
    assert main([*args[:-1], "--print-topology=yes", "--nnodes", "2", "--rdzv-endpoint", "h:1"]) == 0
    assert re.search(r"\| +node 0 +\| +node 1 +\|", capsys.readouterr().out)
    assert main([*args[:-1], "--print-topology=no"]) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--vipu-partition=x", "true"], "scheduler"),
        (["--vipu-server-host", "x", "true"], "scheduler"),
        (["--ipus-per-replica", "2", "true"], "leave it out"),
        (["--numa-aware=maybe", "true"], "yes or no"),
        (["--import-config", "job.toml", "true"], "options are not kept in files"),
        (["--export-config=job.toml", "true"], "options are not kept in files"),
        ([], "no program to run"),
        (["--num-instances"], "expected one argument"),
        (["--num-instance", "2", "true"], "--num-instance; did you mean '--num-instances'?"),
        (["--num-replica=4", "true"], "--num-replica; did you mean '--num-replicas'?"),
        (["-v", "--max-restarts", "1", "--nodes", "4", "true"], "--nodes; did you mean '--nnodes'?"),
        (["--qqq", "true"], "no option --qqq; see --help"),
    ],
)
def test_what_cannot_be_done_is_refused(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *args]) == 2
    assert said in capsys.readouterr().err
