"""Errors that have travelled are what they were: every kind that Python has, and those that users write."""

import builtins
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.engine.wire.failures import _inside, load_error, pack_error
from headrace.errors import WorkerStuck


def travelled(error: BaseException) -> Any:
    return load_error(pack_error(error))


class Told(Exception):
    """Its constructor takes something else than `args` says."""

    def __init__(self, path: str, *, line: int) -> None:
        super().__init__(f"{path}:{line} is damaged")
        self.path, self.line = path, line


class Slotted(OSError):
    __slots__ = ("offset",)

    def __init__(self, name: str, offset: int) -> None:
        super().__init__(5, "Input/output error", name)
        self.offset = offset


class Made(Exception):
    """Its `__new__` takes something else, too."""

    def __new__(cls, one: int, two: int) -> "Made":
        made = super().__new__(cls)
        made.args = (one + two,)
        return made

    def __init__(self, one: int, two: int) -> None:
        pass


@dataclass
class Data(ValueError):
    row: int
    column: str


class Both(RuntimeError, OSError):
    """The second base lays out the memory."""


class Reduced(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not by pickle")


def unreadable() -> UnicodeDecodeError:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def missing(what: str) -> BaseException:
    try:
        exec(what)
    except BaseException as error:
        return error
    raise AssertionError


ERRORS = [
    FileNotFoundError(2, "No such file or directory", "a.jpg"),
    OSError(18, "Invalid cross-device link", "a", None, "b"),
    BlockingIOError(11, "later", 7),
    missing("open('/nowhere/at/all')"),
    missing("import nowhere_at_all"),
    missing("from os import nothing_like_it"),
    missing("().nothing"),
    missing("nothing_here"),
    missing("exec('1 +')"),
    missing("{}['key']"),
    unreadable(),
    UnicodeEncodeError("ascii", "\u20ac", 0, 1, "not in range"),
    StopIteration("value"),
    SystemExit("a reason"),
    KeyboardInterrupt(),
    WorkerStuck("nothing arrived"),
    Told("a.tar", line=7),
    Slotted("a.bin", 4096),
    Made(2, 3),
    Data(1, "x"),
    Both("text"),
    Reduced("x"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}")
def test_an_error_arrives_with_everything_that_it_carries(error: BaseException) -> None:
    error.add_note("a note")
    again = travelled(error)
    assert (type(again), again.args, str(again), repr(again)) == (type(error), error.args, str(error), repr(error))
    assert vars(again) == vars(error)
    inside = {name: value for name, value in _inside(error).items() if name != "obj"}
    assert {name: getattr(again, name) for name in inside} == inside


def test_every_exception_of_python_survives_the_way() -> None:
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    for kind in kinds:
        args: tuple[Any, ...] = ("text",)
        if issubclass(kind, BaseExceptionGroup):
            args = ("text", [ValueError(1)])
        elif kind in (UnicodeDecodeError, UnicodeEncodeError):
            args = ("utf-8", b"x" if kind is UnicodeDecodeError else "x", 0, 1, "why")
        elif kind is UnicodeTranslateError:
            args = ("x", 0, 1, "why")
        again = travelled(kind(*args))
        assert (type(again), str(again)) == (type(kind(*args)), str(kind(*args)))


def test_the_members_of_a_group_are_what_they_were_too() -> None:
    group = travelled(ExceptionGroup("two", [Told("a", line=1), FileNotFoundError(2, "no", "b")]))
    assert [type(one) for one in group.exceptions] == [Told, FileNotFoundError]
    assert (group.message, group.exceptions[0].line, group.exceptions[1].filename) == ("two", 1, "b")
    assert group.split(Told)[0].exceptions == group.exceptions[:1]


def test_what_cannot_travel_is_left_out_and_a_local_class_is_told_as_it_is() -> None:
    class Local(LookupError):
        pass

    error = Local("x", open)
    error.lock = missing  # type: ignore[attr-defined]
    error.handle = (n for n in ())  # type: ignore[attr-defined]
    again = travelled(error)
    assert isinstance(again, LookupError)
    assert again.args[0] == "x"
    assert not hasattr(again, "handle")
    assert pickle.dumps(str(again))
