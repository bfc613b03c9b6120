"""Shell completion: the scripts are sound, and they know every verb and option."""

import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.cli import VERBS, main
from headrace.cli.completion import SHELLS, options, words


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verb_and_its_options_are_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    known = words()
    assert set(known) == set(VERBS)
    for verb, choices in known.items():
        assert verb in text
        for word in choices:
            assert word.lstrip("-") in text


def test_options_are_read_from_a_help_text() -> None:
    text = "options:\n  -h, --help   show it\n  --json       print it\n  --workers N\n                        so many\n"
    assert options(text) == [("--help", "show it"), ("--json", "print it"), ("--workers", "so many")]
    assert words()["verify"]["--quarantine"].startswith("run the samples")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_sound(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script(shell, capsys))
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["headrace", "ver"], ["verify"]),
        (["headrace", "snapshot", "sh"], ["show"]),
        (["headrace", "verify", "--qua"], ["--quarantine"]),
        (["headrace", "completion", "f"], ["fish"]),
    ],
)
def test_bash_completes_a_line(
    line: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script"
    path.write_text(script("bash", capsys))
    asked = (
        f'source {path}; COMP_WORDS=({" ".join(line)}); COMP_CWORD={len(line) - 1}; _headrace; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=20, cwd=tmp_path)
    assert done.stdout.split()[: len(expected)] == expected, done.stderr


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "bash" in capsys.readouterr().err
