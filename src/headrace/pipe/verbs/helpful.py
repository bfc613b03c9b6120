"""Verbs that say what was probably meant when they are called wrongly, and whose errors stop at the verb."""

import inspect
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from headrace.errors import meant
from headrace.tracebacks import shortened

P = ParamSpec("P")
R = TypeVar("R")


class HelpfulType(type):
    """The type of a class that says what was probably meant when it is asked for what it does not have."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise AttributeError(f"{cls.__name__} has no verb {name!r}{unknown_verb(cls, name)}")


def unknown_verb(kind: type, name: str) -> str:
    """The end of a message about a verb that is not there."""
    if name.startswith("_"):
        return ""
    from headrace.pipe.verbs.foreign import VERBS, instead

    return instead(name, VERBS) or meant(name, [verb for verb in dir(kind) if not verb.startswith("_")])


def make_helpful(kinds: Iterable[type]) -> None:
    """All public methods of these classes."""
    for kind in kinds:
        for name, value in list(vars(kind).items()):
            if name.startswith("_"):
                continue
            if isinstance(value, staticmethod):
                setattr(kind, name, staticmethod(helpful(value.__func__)))
            elif inspect.isfunction(value):
                setattr(kind, name, helpful(value))


def helpful(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb."""

    @wraps(verb)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # it was not even entered
                said = re.sub(r"^\w+\.(?=\w+\(\))", "", str(error))  # not the class that happens to hold the verb
                raise TypeError(f"{said}{_hint(verb, said)}") from None
            raise shortened(error)  # noqa: B904 - it is the same one
        except Exception as error:
            raise shortened(error)  # noqa: B904

    return called


def _hint(verb: Callable[P, R], said: str) -> str:
    parameters = [p for p in inspect.signature(verb).parameters.values() if p.name not in ("self", "cls")]
    names = [p.name for p in parameters]
    if unknown := re.search(r"unexpected keyword argument '(\w+)'", said):
        from headrace.pipe.verbs.foreign import OPTIONS, instead

        if (foreign := instead(unknown[1], OPTIONS)) and unknown[1] not in names:
            return foreign
        return meant(unknown[1], names, f"{verb.__name__}() takes {', '.join(names) or 'nothing'}")
    by_name = [f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY]
    if by_name and re.search(r"takes (from )?\d.* but \d+ were given", said):
        return f"; give its options by name: {', '.join(by_name)}"
    return ""
