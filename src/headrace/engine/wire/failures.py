"""Errors on their way to another process: they arrive as the type they are, with everything they carry.

An exception is taken apart into its class, its arguments and its fields, and put together without its constructor:
what a constructor takes is often not what `args` says. Fields are the instance's own attributes and slots, and those
that built-in exceptions keep inside (the file name of an OSError, the name of an ImportError, ...). What cannot travel
of it is left out; a class that cannot travel is told as its nearest base that can.

One error does not arrive as it is: `sys.exit()` in a worker would end the program of the consumer, in silence and often
with exit code 0. There it is an ordinary error, which the SystemExit has caused.
"""

import contextlib
import pickle
import traceback
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from headrace.engine.wire import codec
from headrace.engine.wire.messages import Failed
from headrace.tracebacks import Call, calls, full, put_back, shorten

ErrorParts = tuple[type[BaseException], tuple[Any, ...], dict[str, Any], list[bytes] | None]
"""Class, arguments, fields, and the packed members of an exception group."""
_BUILT_IN = "builtins"
_OWN = {"args", "exceptions", "message"}
"""What the parts say by themselves."""


class RemoteTraceback(Exception):
    """The traceback of what led to an error, as it was in the worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def failed(error: BaseException) -> Failed:
    """An error, with what led to it and the calls that it went through, as it travels."""
    led = error if full() else error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    text = ""
    if led is not None:
        shorten(led)
        text = "".join(traceback.format_exception(led))
    return Failed(pack_error(error), text, calls(error))


def remote(packed: bytes, led: str, made: tuple[Call, ...]) -> BaseException:
    """The error itself, with the calls that it went through in the worker, caused by what caused it there."""
    error = load_error(packed)
    put_back(error, made)
    if led:
        error.__cause__ = RemoteTraceback(led)
    return without_exit(error)


def without_exit(error: BaseException) -> BaseException:
    """An error of a worker, as it may be raised in the consumer."""
    if not isinstance(error, SystemExit):
        return error
    called = f"sys.exit({'' if error.code is None else repr(error.code)})"
    return ordinary(
        f"{called} in a worker does not end the program: raise an ordinary error there, or exit in the training loop",
        error,
    )


def ordinary(told: str, cause: BaseException) -> RuntimeError:
    """An error that is raised instead of another one; it takes over the notes."""
    error = RuntimeError(told)
    for note in cause.__dict__.pop("__notes__", ()):
        error.add_note(note)
    error.__cause__ = cause
    return error


def pack_error(error: BaseException) -> bytes:
    """The exception as bytes."""
    fields = {name: value for name, value in {**_inside(error), **vars(error)}.items() if _travels(value)}
    group = [pack_error(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else None
    said = error.args[:1] if group is not None else error.args
    args = said if _travels(said) else tuple(a if _travels(a) else repr(a) for a in said)
    for kind in type(error).__mro__:
        if _travels(kind):
            return codec.dumps((kind, args, fields, group))
    raise AssertionError("BaseException itself can always travel")


def load_error(packed: bytes) -> BaseException:
    """The exception again."""
    parts: ErrorParts = pickle.loads(packed)
    kind, args, fields, group = parts
    given = args if group is None else (*args, [load_error(one) for one in group])
    error = _new(kind, given)
    error.args = given
    for name, value in fields.items():
        if value is None and getattr(error, name, error) is None:
            continue  # an OSError whose second file name was set to None would name it
        with contextlib.suppress(AttributeError, TypeError):  # a field that only the interpreter sets
            setattr(error, name, value)
    return error


def _inside(error: BaseException) -> dict[str, Any]:
    """Fields that are not in the instance's dictionary: of built-in exceptions, and of classes with slots."""
    found: dict[str, Any] = {}
    for kind in reversed(type(error).__mro__):
        for name, field in vars(kind).items():
            if isinstance(field, MemberDescriptorType | GetSetDescriptorType) and not name.startswith("__"):
                with contextlib.suppress(AttributeError):  # never set
                    found[name] = getattr(error, name)
    return {name: value for name, value in found.items() if name not in _OWN}


def _new(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An instance whose own constructor has not run; that of the built-in class below it has, where it takes these."""
    for base in kind.__mro__:
        if base.__module__ == _BUILT_IN and issubclass(base, BaseException):
            try:
                error: BaseException = base.__new__(kind, *args)
            except TypeError:
                continue  # the memory of an instance is laid out by another of its bases
            with contextlib.suppress(TypeError):
                base.__init__(error, *args)
            return error
    raise AssertionError("some built-in base makes the instance")


def _travels(value: object) -> bool:
    try:
        pickle.loads(codec.dumps(value))
    except Exception:
        return False
    return True
