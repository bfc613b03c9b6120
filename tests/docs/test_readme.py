"""What the README shows besides blocks of Python: commands, a recorded terminal, imports."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}


def ran(path: str) -> str:
    """What a program of the repository prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / path)], env=ENVIRONMENT, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_numbers(text: str) -> list[str]:
    return [re.sub(r"\d+", "N", line) for line in text.strip().splitlines()]


def test_the_recorded_terminal_is_what_the_program_prints() -> None:
    ((path, recorded),) = re.findall(r"^```console\n\$ python (\S+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert without_numbers(ran(path)) == without_numbers(recorded)


def test_the_commands_are_there_and_are_programs() -> None:
    commands = re.findall(r"^(scripts/\w+)", README, re.MULTILINE)
    assert commands == ["scripts/demo", "scripts/test"]
    for command in commands:
        assert (ROOT / command).stat().st_mode & 0o111
        assert subprocess.run(["bash", "-n", str(ROOT / command)]).returncode == 0


def test_the_demo_proves_the_stream() -> None:
    assert ran("scripts/demo_program.py").count("\nok  ") == 4


def test_every_import_of_the_table_works(run_script: RunScript) -> None:
    (table,) = re.findall(r"^## Change one import\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    imports = re.findall(r"`(from headrace\S* import [^`]+)`", table)
    assert len(imports) == 5
    done = run_script("\n".join(imports))
    assert done.returncode == 0, done.stderr


def test_the_extras_that_the_readme_names_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = re.findall(r"^\* Extras: (.*?)\. ", README, re.MULTILINE | re.DOTALL)
    for extra in re.findall(r"`(\w+)`", named):
        assert extra in known
