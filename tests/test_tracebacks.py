"""Tracebacks show the lines of the program, wherever they ran, and leave the engine's out."""

import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Loader, Pipe
from headrace.errors import WorkerStuck
from headrace.tracebacks import put_back
from tests.conftest import RunScript

HOUSE = str(Path(headrace.__file__).parent)
KINDS: dict[str, dict[str, Any]] = {"inline": {}, "thread": {"workers": 1, "kind": "thread"}, "process": {"workers": 1}}


def inner(x: int) -> int:
    raise KeyError(x)


def outer(x: int) -> int:
    return inner(x)


def over_lines(x: int) -> list[float]:
    return [
        1,
        2 + x / x,
    ]


UNDERLINED = """
    2 + x / x,
        ~~^~~
"""


def forever(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(1)


def waiting(path: Path) -> bytes:
    return forever(path)


def wrapping(x: int) -> int:
    try:
        return inner(x)
    except KeyError as error:
        raise ValueError("wrapped") from error


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("kind", KINDS)
def test_the_calls_of_the_program_are_shown_and_none_of_the_engine(kind: str) -> None:
    with Loader(Pipe.of([1]).map(outer), **KINDS[kind]) as loader, pytest.raises(KeyError) as caught:
        list(loader)
    calls = traceback.extract_tb(caught.value.__traceback__)
    assert [call.name for call in calls[-2:]] == ["outer", "inner"]
    assert not any(call.filename.startswith(HOUSE) for call in calls)
    assert "raise KeyError(x)" in shown(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_failed_is_underlined_as_python_underlines_it(kind: str) -> None:
    def told(iterable: Iterable[object]) -> str:
        with pytest.raises(ZeroDivisionError) as caught:
            list(iterable)
        return shown(caught.value)

    assert UNDERLINED in (said := told(map(over_lines, [0]))), said
    with Loader(Pipe.of([0]).map(over_lines), **KINDS[kind]) as loader:
        text = told(loader)
    assert text[text.index("in over_lines") : text.index("headrace: in")] == said[said.index("in over_lines") :]


def test_a_call_whose_columns_are_not_known_is_not_underlined() -> None:
    error = KeyError(1)
    line = inner.__code__.co_firstlineno + 1
    put_back(error, ((__file__, "inner", (line, line, -1, -1)),))
    assert shown(error).splitlines()[1:] == [
        f'  File "{__file__}", line {line}, in inner', "    raise KeyError(x)", "KeyError: 1"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_of_what_hangs_the_calls_of_the_program_are_shown(kind: str, tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "empty")
    writer = os.open(path, os.O_RDWR)  # (Nothing comes, and there is no end.)
    try:
        with Loader(Pipe.of([path]).map(waiting), **KINDS[kind], timeout=0.5) as loader:
            with pytest.raises(WorkerStuck) as caught:
                list(loader)
            os.write(writer, b"x")
    finally:
        os.close(writer)
    assert HOUSE not in str(caught.value)
    assert "in waiting" in str(caught.value)
    assert "in forever" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 10, str(caught.value)


def test_what_hangs_is_told_in_few_lines_wherever_the_package_lies(run_script: RunScript, tmp_path: Path) -> None:
    """A dump of a process has its paths in ASCII: from a folder whose name is not, it showed the whole engine."""
    (installed := tmp_path / "a b ü €").mkdir()
    (installed / "headrace").symlink_to(Path(headrace.__file__).parent)
    done = run_script(
        """
        import os

        import headrace
        from headrace import Loader, Pipe
        from headrace.errors import WorkerStuck

        def waiting(x):
            with open("empty", "rb") as file:
                file.read(1)

        if __name__ == "__main__":
            assert not headrace.__file__.isascii()
            os.mkfifo("empty")
            writer = os.open("empty", os.O_RDWR)  # (Nothing comes, and there is no end.)
            with Loader(Pipe.of([1]).map(waiting), workers=1, start_method="fork", timeout=0.5) as loader:
                try:
                    list(loader)
                except WorkerStuck as error:
                    print(error)
                os.write(writer, b"x")
        """,
        env={"PYTHONPATH": str(installed)},
    )
    assert "in waiting" in done.stdout, done.stderr
    assert "headrace/" not in done.stdout
    assert len(done.stdout.splitlines()) < 10, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_what_led_to_an_error_is_shown_too(kind: str) -> None:
    with Loader(Pipe.of([1]).map(wrapping), **KINDS[kind]) as loader, pytest.raises(ValueError) as caught:
        list(loader)
    text = shown(caught.value)
    assert "KeyError: 1" in text
    assert "in inner" in text
    assert "in wrapping" in text


def test_whoever_wants_to_see_everything_does(run_script: RunScript) -> None:
    program = """
        import traceback
        from pathlib import Path

        import headrace
        from headrace import Loader, Pipe

        for workers in (0, 1):
            with Loader(Pipe.of([1]).map(lambda x: x / 0), workers=workers) as loader:
                try:
                    list(loader)
                except ZeroDivisionError as error:
                    shown = "".join(traceback.format_exception(error))
                    print(shown.count(f'File "{Path(headrace.__file__).parent}'))
    """
    brief = run_script(program, timeout=50)
    whole = run_script(program, timeout=50, env={"HEADRACE_TRACEBACK": "full"})
    assert brief.stdout.split() == ["0", "0"], brief.stderr
    assert all(int(count) > 5 for count in whole.stdout.split()), whole.stderr
