"""What ranks leave running is ended, and nobody else."""

import os
import signal
import subprocess

import psutil

from headrace.launch.sessions import end_sessions


def session(script: str) -> tuple["subprocess.Popen[str]", int]:
    """A session leader, and the pid of the child that it prints."""
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    with process.stdout as out:
        return process, int(out.readline())


def gone(pid: int) -> bool:
    try:
        psutil.Process(pid).wait(timeout=10)
    except psutil.NoSuchProcess:
        pass
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_children_of_a_leader_that_has_ended_are_ended() -> None:
    leader, child = session("sleep 1000 & echo $!")
    leader.wait()
    end_sessions([leader.pid])
    assert gone(child)


def test_a_leader_that_still_runs_is_ended_with_its_children() -> None:
    leader, child = session("trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1; done")
    end_sessions([leader.pid])
    assert leader.wait(timeout=10) == -signal.SIGKILL
    assert gone(child)


def test_a_daemon_with_a_session_of_its_own_is_left_alone() -> None:
    leader, child = session("setsid sh -c 'echo $$; exec sleep 1000' &")
    leader.wait()
    end_sessions([leader.pid])
    assert psutil.pid_exists(child)
    os.kill(child, signal.SIGKILL)
    assert gone(child)


def test_a_number_that_belongs_to_somebody_else_now_is_left_alone() -> None:
    # a session leader that is no child of ours stands for the process that got a reaped leader's number
    middle, stranger = session("setsid sh -c 'echo $$; exec sleep 1000' & wait")
    end_sessions([stranger])
    assert psutil.Process(stranger).status() != psutil.STATUS_ZOMBIE
    os.kill(stranger, signal.SIGKILL)
    middle.wait(timeout=10)
