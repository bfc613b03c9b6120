"""Tracebacks show the lines of the program, wherever they ran, and leave the engine's out."""

import traceback
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Loader, Pipe
from tests.conftest import RunScript

HOUSE = str(Path(headrace.__file__).parent)
KINDS: dict[str, dict[str, Any]] = {"inline": {}, "thread": {"workers": 1, "kind": "thread"}, "process": {"workers": 1}}


def inner(x: int) -> int:
    raise KeyError(x)


def outer(x: int) -> int:
    return inner(x)


def wrapping(x: int) -> int:
    try:
        return inner(x)
    except KeyError as error:
        raise ValueError("wrapped") from error


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("kind", KINDS)
def test_the_calls_of_the_program_are_shown_and_one_of_the_engine(kind: str) -> None:
    with Loader(Pipe.of([1]).map(outer), **KINDS[kind]) as loader, pytest.raises(KeyError) as caught:
        list(loader)
    calls = traceback.extract_tb(caught.value.__traceback__)
    assert [call.name for call in calls[-2:]] == ["outer", "inner"]
    assert sum(call.filename.startswith(HOUSE) for call in calls) == 1
    assert "raise KeyError(x)" in shown(caught.value)


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
    assert brief.stdout.split() == ["1", "1"], brief.stderr
    assert all(int(count) > 5 for count in whole.stdout.split()), whole.stderr
