"""The commands on the page docs/cli.md do what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Headrace
from tests.conftest import RunScript

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
PYTHON = "\n\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CONSOLE = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


SAVE = """
import json
from data import loader
next(iter(loader))
json.dump(loader.state_dict(), open("state.json", "w"))
"""


def commands() -> list[tuple[str, list[str]]]:
    """Each command, and the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in "".join(CONSOLE).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("command", "printed"), commands(), ids=[command for command, _ in commands()])
def test_a_command_of_the_page_prints_what_the_page_says(
    command: str, printed: list[str], tmp_path: Path, headrace: Headrace, run_script: RunScript
) -> None:
    (tmp_path / "data.py").write_text(PYTHON)
    if "state.json" in command:
        assert run_script(SAVE).returncode == 0
    if "bad.jsonl" in command:
        assert run_script(PYTHON).returncode == 0
    if "corpus" in command:
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    done = headrace(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    for line in printed:
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert re.search(f"^{pattern}$", done.stdout, re.MULTILINE), f"{line}\n{done.stdout}"


def test_the_page_has_every_verb() -> None:
    from headrace.cli import VERBS

    assert all(f"headrace {verb}" in PAGE for verb in VERBS)
