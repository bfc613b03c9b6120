"""Tracebacks with the lines of the user's program, without the calls inside headrace.

    shortened(error)       the error without the calls inside headrace; HEADRACE_TRACEBACK=full keeps them
    calls(error)           file, line and function of each call outside of headrace: what a worker sends of a traceback
    put_back(error, ...)   a traceback of such calls, which Python, debuggers and notebooks show like any other

An exception that comes back from a worker is shown with the calls it went through there; only their local variables are
missing.
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from types import TracebackType
from typing import ParamSpec, TypeVar

Call = tuple[str, int, str]
"""File, line, function."""
P = ParamSpec("P")
R = TypeVar("R")

_HOUSE = f"{os.path.dirname(os.path.realpath(__file__))}{os.sep}"


def full() -> bool:
    """Whether the user wants to see the calls inside headrace too."""
    return os.environ.get("HEADRACE_TRACEBACK") == "full"


def shortened(error: BaseException) -> BaseException:
    """The error, and those that led to it, without the calls inside headrace: raise it where users call headrace."""
    if full():
        return error
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        kept = [link for link in _links(one.__traceback__) if not _ours(link)]
        for link, inner in pairwise([*kept, None]):
            assert link is not None
            link.tb_next = inner
        one.__traceback__ = kept[0] if kept else None
        one = one.__cause__ or one.__context__
    return error


def short_errors(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: errors of the function show its caller and itself, not what it called inside headrace."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise shortened(error)  # noqa: B904 - it is the same one

    return called


def calls(error: BaseException) -> tuple[Call, ...]:
    """The calls of an error's traceback, from the outermost to where it was raised, without those of headrace."""
    return tuple(
        (link.tb_frame.f_code.co_filename, link.tb_lineno, link.tb_frame.f_code.co_name)
        for link in _links(error.__traceback__)
        if not _ours(link)
    )


def put_back(error: BaseException, made: tuple[Call, ...]) -> None:
    """Let the error's traceback show these calls."""
    traceback: TracebackType | None = None
    for file, line, function in reversed(made):
        traceback = _link(file, line, function, traceback)
    error.__traceback__ = traceback


def _links(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _ours(link: TracebackType) -> bool:
    return link.tb_frame.f_code.co_filename.startswith(_HOUSE)


def _link(file: str, line: int, function: str, inner: TracebackType | None) -> TracebackType:
    """One call of a traceback. Python makes frames only for code that runs: so a line with this file and function name
    is run, which raises."""
    code = compile("raise LookupError", file, "exec")
    code = code.replace(co_name=function, co_qualname=function, co_firstlineno=line)
    try:
        exec(code, {"__name__": function, "__file__": file})
    except LookupError as raised:
        made = raised.__traceback__.tb_next if raised.__traceback__ is not None else None
    return TracebackType(inner, made.tb_frame, made.tb_lasti, line) if made is not None else inner  # type: ignore[return-value]
