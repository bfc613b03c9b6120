"""The command itself: help, verbs, errors, and that asking for help is cheap."""

import pytest

from headrace.cli import VERBS, main
from tests.conftest import RunScript


def test_help_lists_all_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([], ["--help"]):
        assert main(args) == 0
        out = capsys.readouterr().out
        assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_what_it_takes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"headrace {verb}" in capsys.readouterr().out


def test_an_unknown_verb_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert "run" in capsys.readouterr().err


def test_a_misspelt_verb_is_answered_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctr", "--json"]) == 2
    assert capsys.readouterr().err == "headrace: there is no verb 'doctr'; did you mean 'doctor'?\n"


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headrace ")


def test_help_loads_no_verb_and_no_big_package(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        from headrace.cli import main
        main(["--help"])
        heavy = {"numpy", "torch", "headrace.cli.run", "headrace.cli.doctor", "headrace.distributed", "asyncio"}
        print("loaded:", sorted(heavy & set(sys.modules)))
        """
    )
    assert done.stdout.endswith("loaded: []\n"), done.stdout


def test_an_option_that_is_wrong_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--num-replicas", "3", "--num-instances", "2", "true"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("headrace run: --num-replicas 3")
    assert err.count("\n") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_stream_that_is_closed_takes_what_is_said_and_nothing_fails(closed: str, run_script: RunScript) -> None:
    done = run_script(
        f"""
        import subprocess, sys
        command = f"'{{sys.executable}}' -m headrace.cli doctor {closed}"
        print(subprocess.run(command, shell=True, stderr=sys.stdout).returncode)
        """
    )
    assert done.stdout.endswith("0\n"), done.stdout
    assert "Traceback" not in done.stdout
