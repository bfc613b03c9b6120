"""A worker never becomes a second copy of the user's program, and a copy of the program never takes its work."""

import pytest

from tests.conftest import RunScript


def test_a_forked_worker_with_a_broken_stdout_does_not_run_the_users_code(run_script: RunScript) -> None:
    done = run_script(
        """
        import os, sys
        from headrace import Loader, Pipe
        read, write = os.pipe()
        os.dup2(write, 1), os.close(read), os.close(write)
        try:
            with Loader(Pipe.of(list(range(10))).map(print).batch(1), workers=1, start_method="fork") as loader:
                list(loader)
        finally:
            os.write(2, b"<the end of the program>")
            os._exit(0)
        """,
        env={"PYTHONUNBUFFERED": ""},
    )
    assert done.stderr.count("<the end of the program>") == 1, done.stderr


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        "server",
        "spawn",
    ],
)
def test_a_program_without_stdout_and_stderr_can_load(run_script: RunScript, method: str) -> None:
    # A daemon's streams are closed: sys.stdout is None.
    done = run_script(
        """
        import os, subprocess, sys
        if len(sys.argv) == 2:
            subprocess.run(["sh", "-c", '"$0" "$1" "$2" again >&- 2>&-', sys.executable, __file__, sys.argv[1]])
            print(open("told").read())
        else:
            from headrace import Loader, Pipe
            try:
                with Loader(Pipe.of([1, 2, 3]), workers=1, start_method=sys.argv[1]) as loader:
                    told = repr(list(loader))
            except BaseException as error:
                told = repr(error)
            with open("told", "w") as file:
                file.write(told)
        """,
        method,
    )
    assert done.stdout == "[1, 2, 3]\n", done.stderr


@pytest.mark.parametrize("how", ["workers=2, start_method='fork'", "workers=2", "workers=2, kind='thread'"])
def test_a_forked_copy_of_the_consumer_does_not_take_the_parents_replies(run_script: RunScript, how: str) -> None:
    done = run_script(
        f"""
        import os
        from headrace import Loader, Pipe
        from headrace.errors import HeadraceError
        loader = Loader(Pipe.of(list(range(400))).batch(4), timeout=3, {how})
        batches = iter(loader)
        got = [next(batches) for _ in range(10)]
        copy = os.fork()
        if copy == 0:
            try:
                list(batches)
            except HeadraceError as error:
                print("refused:", type(error).__name__)
            print("anew:", [x for b in loader for x in b][-1], flush=True)
            loader.close()
            os._exit(0)
        os.waitpid(copy, 0)
        got += batches
        assert [x for b in got for x in b] == list(range(400))
        loader.close()
        """,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused: Closed\nanew: 399\n"


@pytest.mark.parametrize("leave", ["os._exit(0)", "raise SystemExit", "raise ValueError"])
@pytest.mark.parametrize("how", ["workers=2, start_method='fork'", "workers=2", "workers=2, kind='thread'"])
def test_a_forked_copy_that_ends_by_itself_changes_nothing(run_script: RunScript, how: str, leave: str) -> None:
    done = run_script(
        f"""
        import os
        from headrace import Loader, Pipe
        with Loader(Pipe.of(list(range(400))).batch(4), timeout=10, {how}) as loader:
            batches = iter(loader)
            got = [next(batches) for _ in range(10)]
            copy = os.fork()
            if copy == 0:
                {leave}
            os.waitpid(copy, 0)
            got += batches
        assert [x for b in got for x in b] == list(range(400))
        """,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
