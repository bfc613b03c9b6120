"""Tracebacks with the lines of the user's program, without the calls inside headrace.

    shorten(error)         take the calls inside headrace out; HEADRACE_TRACEBACK=full keeps them
    calls(error)           where each call outside of headrace stands: what a worker sends of a traceback
    put_back(error, ...)   a traceback of such calls, which Python, debuggers and notebooks show like any other
    users_line()           where the user has called headrace, for a warning
    short_dump(text)       what a thread or process does now, without the engine; `short_stack` of a thread of this one

An error is shortened where users call headrace, and raised by a bare `raise`, which adds no call to a traceback:

    except Exception as error:
        shorten(error)
        raise

An exception that comes back from a worker is shown with the calls it went through there; only their local variables are
missing.
"""

import ast
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice, pairwise, takewhile
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

Span = tuple[int, int, int, int]
"""Line, last line, column and last column of what is called; columns that Python does not know are -1."""
Call = tuple[str, str, Span]
"""File, function, and where in the file."""
P = ParamSpec("P")
R = TypeVar("R")

_HOUSE = f"{os.path.dirname(__file__)}{os.sep}"
_ENGINE = f"{_HOUSE}engine{os.sep}"
_DUMPED_HOUSE, _DUMPED_ENGINE = (path.encode("ascii", "backslashreplace").decode("ascii") for path in (_HOUSE, _ENGINE))
"""The same as `faulthandler` writes them: letters that are not ASCII are escaped."""
_NAME = f"{__name__.partition('.')[0]}."
_TORCHS = tuple(
    os.path.join("torch", "utils", "data", *name)
    for name in (("dataloader.py",), ("_utils", "collate.py"), ("datapipes", "_hook_iterator.py"))
)
"""What torch calls inside itself says as little: its loader, which ours extends, its collate, and what it puts around
the iteration of a DataPipe."""


def full() -> bool:
    """Whether the user wants to see the calls inside headrace too."""
    return os.environ.get("HEADRACE_TRACEBACK") == "full"


def shorten(error: BaseException) -> None:
    """Take the calls inside headrace out of the error's traceback, and out of those of the errors that led to it."""
    if full():
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = [link for link in _links(one.__traceback__) if not _ours(link.tb_frame)]
        for link, inner in pairwise([*kept, None]):
            assert link is not None
            link.tb_next = inner
        one.__traceback__ = kept[0] if kept else None
        waiting += (one.__cause__, one.__context__)


def short_errors(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: errors of the function show its caller, and not what it called inside headrace."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return called


def users_line() -> int:
    """The `stacklevel` of a warning about what the user has called: it is shown at the line of that call."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _ours(frame):
        level, frame = level + 1, frame.f_back
    return level


def calls(error: BaseException) -> tuple[Call, ...]:
    """The calls of an error's traceback, from the outermost to where it was raised, without those of headrace."""
    return tuple(
        (link.tb_frame.f_code.co_filename, link.tb_frame.f_code.co_name, _span(link))
        for link in _links(error.__traceback__)
        if not _ours(link.tb_frame)
    )


def put_back(error: BaseException, made: tuple[Call, ...]) -> None:
    """Let the error's traceback show these calls.

    Their frames are made in a thread of their own: a frame holds its caller, and here these are the engine, the
    iterator and the program, with all that they hold, for as long as somebody holds the error.
    """
    links: list[TracebackType | None] = [None]
    maker = threading.Thread(target=_chain, args=(made, links))
    maker.start()
    maker.join()
    error.__traceback__ = links.pop()


def short_dump(dump: str) -> str:
    """What `faulthandler` tells of a process, without the engine: of each thread the calls of the user's code, up to
    where the engine has called it, and nothing of a thread that has none."""
    if full():
        return dump
    threads = []
    for title, *lines in (thread.splitlines() for thread in dump.strip().split("\n\n")):
        inside = takewhile(lambda line: _DUMPED_ENGINE not in line, lines)
        if called := [line for line in inside if _DUMPED_HOUSE not in line]:
            threads += [title, *called, ""]
    return "\n".join(threads) or dump


def short_stack(frame: FrameType) -> str:
    """The same of a thread of this process, outermost call first, as Python shows it."""
    import traceback

    stack = traceback.extract_stack(frame)
    if not full():
        inside = takewhile(lambda call: not call.filename.startswith(_ENGINE), reversed(stack))
        stack = traceback.StackSummary.from_list(
            [call for call in inside if not call.filename.startswith(_HOUSE)][::-1]
        )
    return "".join(stack.format())


def _links(link: TracebackType | None) -> Iterator[TracebackType]:
    while link is not None:
        yield link
        link = link.tb_next


def _ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file == "<string>":  # the constructor of a dataclass
        return str(frame.f_globals.get("__name__")).startswith(_NAME)
    return file.startswith(_HOUSE) or file.endswith(_TORCHS)


def _span(link: TracebackType) -> Span:
    at = link.tb_lineno
    positions = islice(link.tb_frame.f_code.co_positions(), link.tb_lasti // 2, None)
    line, last_line, column, last_column = next(positions, (None, None, None, None))
    if line is None or last_line is None or column is None or last_column is None:
        return at, at, -1, -1
    return line, last_line, column, last_column


def _chain(made: tuple[Call, ...], links: list[TracebackType | None]) -> None:
    for call in reversed(made):
        links.append(_link(*call, links.pop()))


def _link(file: str, function: str, span: Span, inner: TracebackType | None) -> TracebackType:
    """One call of a traceback. Python makes frames only for code that runs: so a statement that stands in this file,
    at this place, in a function of this name, is run, which raises."""
    line, last_line, column, last_column = span
    tree = ast.parse("raise LookupError")
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno, node.end_lineno = 1, 1 + last_line - line
            node.col_offset, node.end_col_offset = column, last_column
    code = compile(tree, file, "exec").replace(co_name=function, co_qualname=function, co_firstlineno=line)
    try:
        exec(code, {"__name__": function, "__file__": file})
    except LookupError as raised:
        made = raised.__traceback__.tb_next if raised.__traceback__ is not None else None
    return TracebackType(inner, made.tb_frame, made.tb_lasti, line) if made is not None else inner  # type: ignore[return-value]
