"""What users install is complete: a wheel built from this tree works in an empty environment, away from the tree."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Building, making an environment and fetching numpy take a while on a slow line.
pytestmark = pytest.mark.timeout(600)

PROGRAM = """
from headrace import Loader, Pipe

def square(x):
    return x * x

def run(workers):
    pipe = Pipe.of(range(100)).shuffle().map(square).batch(8).collate()
    with Loader(pipe, workers=workers, seed=7) as loader:
        return [batch.tolist() for batch in loader]

batches = run(workers=2)
assert batches == run(workers=0)
assert sorted(x for batch in batches for x in batch) == [x * x for x in range(100)]
import headrace, sys
assert "torch" not in sys.modules
print(headrace.__file__)
"""


def ran(*command: str | Path, cwd: Path) -> str:
    # (With the package on the path, pip would take it for installed.)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build needs: building inside the project would leave its own folders there."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", folder)
    ran(sys.executable, "-m", "pip", "wheel", *options, tree, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def install(empty: Path, what: object, folder: Path) -> None:
    """By the pip that runs the tests: to put another one into each environment takes longer than all the rest."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
    ran(sys.executable, "-m", "pip", "--python", empty / "python", "install", *quiet, str(what), cwd=folder)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "empty"
    venv.create(folder)
    yield folder / "bin"
    shutil.rmtree(folder)


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"headrace-{PROJECT['version']}.dist-info/"
    source = ROOT / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*.py") if ".egg-info" not in str(path)}
    assert {name for name in names if not name.startswith(info)} == wanted | {"headrace/py.typed"}
    assert info + "licenses/LICENSE" in names


def test_the_wheel_needs_only_numpy_and_cloudpickle(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"headrace-{PROJECT['version']}.dist-info/METADATA").decode()
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert sorted(line.split()[1].split(">")[0] for line in needs) == ["cloudpickle", "numpy"]
    assert "License-Expression: Apache-2.0" in metadata


def test_the_wheel_loads_data_in_an_empty_environment(wheel: Path, empty: Path, tmp_path: Path) -> None:
    install(empty, wheel, tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    where = ran(empty / "python", "-I", program, cwd=tmp_path)
    assert where.startswith(str(empty.parent))
    assert (empty / "headrace").exists()
    ran(empty / "headrace", "--help", cwd=tmp_path)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.deep
def test_an_installation_from_a_repository_loads_data(tree: Path, empty: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(tree, repository, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    ran("git", "init", "--quiet", cwd=repository)
    ran("git", "add", ".", cwd=repository)
    ran("git", *identity, "commit", "--quiet", "--no-verify", "--message", "tree", cwd=repository)
    url = f"git+file://{repository}"
    install(empty, url, tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert ran(empty / "python", "-I", program, cwd=tmp_path).startswith(str(empty.parent))
