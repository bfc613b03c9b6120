"""Warm programs: forks of a process that has imported torch, which see what an interpreter of their own would see."""

import json
import signal
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import RunScript

pytest.importorskip("torch")


def test_a_warm_program_has_its_own_session_folder_arguments_and_environment(
    run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(
        """
        import json, os, sys
        assert "torch" in sys.modules and "headrace" not in sys.modules
        own = os.getsid(0) == os.getpid()
        json.dump([own, os.getcwd(), sys.argv[1:], os.environ["GIVEN"], sys.path[0]], sys.stdout)
        print(os.path.basename(sys.modules["__main__"].__file__), file=sys.stderr)
        sys.exit(3)
        """,
        1, "two", warm=True, env={"GIVEN": "yes"},
    )  # fmt: skip
    assert json.loads(done.stdout) == [True, str(tmp_path), ["1", "two"], "yes", str(tmp_path)]
    assert (done.returncode, done.stderr) == (3, "program0.py\n")


def test_a_warm_program_that_raises_or_is_killed_says_so(run_script: RunScript) -> None:
    failed = run_script("raise KeyError('mine')", warm=True)
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "KeyError: 'mine'")
    killed = run_script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", warm=True)
    assert killed.returncode == -signal.SIGKILL


def test_a_warm_program_that_does_not_end_is_killed_with_all_it_started(run_script: RunScript) -> None:
    with pytest.raises(pytest.fail.Exception, match="did not end within 1 s"):
        run_script("import os, threading; os.fork(); threading.Event().wait()", timeout=1, warm=True)
    assert run_script("print('next')", warm=True).stdout == "next\n"


def test_ranks_have_torchruns_variables_and_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, threading\n"
        "open(f'{sys.argv[1]}/{os.environ[\"RANK\"]} of {os.environ[\"WORLD_SIZE\"]}', 'w').close()\n"
        "if sys.argv[2] == 'fail':\n"
        "    threading.Event().wait() if os.environ['RANK'] == '0' else sys.exit(1)\n"
    )
    assert warm.torchrun(2, program, [tmp_path, "pass"], tmp_path, timeout=50).returncode == 0
    assert {path.name for path in tmp_path.glob("* of *")} == {"0 of 2", "1 of 2"}
    assert warm.torchrun(2, program, [tmp_path, "fail"], tmp_path, timeout=50).returncode == 1
