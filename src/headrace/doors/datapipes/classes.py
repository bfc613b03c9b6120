"""How a class of pipes is made out of a verb.

`Mapper(dp, fn)` is `dp.map(fn)`. A verb returns plain pipes; `typed_node` turns the pipes that the verb made, down to
its arguments, into nodes of the classes that users know, so that a graph can be searched and edited by class.
"""

import inspect
from collections.abc import Callable
from typing import Any

from headrace.doors.datapipes.nodes import READS_BY_ITSELF, SOURCE_NAMES, DataPipe, IterDataPipe, TorchPipe, verb_of
from headrace.pipe.graph import Pipe
from headrace.tracebacks import shorten

CLASS_OF: dict[type, type[DataPipe[Any]]] = {}
"""The classes of ops that a verb of several steps puts between its first and its last one."""


ORIGINAL_NAMES = {
    "Flattener": "FlattenIterDataPipe", "GDriveReader": "GDriveReaderDataPipe", "HttpReader": "HTTPReaderIterDataPipe",
    "ParquetDataFrameLoader": "ParquetDFLoaderIterDataPipe", "SampleMultiplexer": "SampleMultiplexerDataPipe",
    "Slicer": "SliceIterDataPipe",
}  # fmt: skip
"""What TorchData calls classes inside, where that does not follow from their public names."""


class InnerStep(IterDataPipe[Any]):
    """A step of a verb that has several, if no class is listed in `CLASS_OF` for it."""


def typed_node(made: Pipe[Any], cls: type[DataPipe[Any]], args: dict[str, Any], memo: dict[int, Any]) -> Any:
    """A plain pipe as a node of a class, with the arguments of its constructor."""
    if isinstance(made, TorchPipe):
        return made.pipe
    if isinstance(made, DataPipe):
        return made
    if id(made) not in memo:
        field = READS_BY_ITSELF.get(type(made.op))
        below = made.inputs if field is None else (getattr(made.op, field),)
        sources = tuple(
            typed_node(source, CLASS_OF.get(type(source.op), InnerStep), {}, memo) if _is_new(source) else source
            for source in below
            if isinstance(source, Pipe)
        )
        memo[id(made)] = cls.built(made.op, sources, args)
    return memo[id(made)]


def _is_new(source: Pipe[Any]) -> bool:
    return type(source) is Pipe or isinstance(source, TorchPipe)


def make_class(
    name: str,
    make: Callable[..., Any],
    base: type[DataPipe[Any]],
    module: str,
    mixins: tuple[type, ...] = (),
    verb: str = "",
    on: type[DataPipe[Any]] | None = None,
) -> type[DataPipe[Any]]:
    """The class whose constructor is the function `make`, and which is called `verb` as a method of the class `on`."""
    signature = inspect.signature(make)

    def new(cls: type[DataPipe[Any]], *args: object, **kwargs: object) -> Any:
        for alias in SOURCE_NAMES:  # users write Mapper(datapipe=dp, fn=fn)
            if not args and alias in kwargs and alias not in signature.parameters:
                args = (kwargs.pop(alias),)
        try:
            made = make(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {k: v for k, v in bound.arguments.items() if k != "self"}
        memo: dict[int, Any] = {}
        if isinstance(made, list):
            return [typed_node(part, cls, {**arguments, "instance_id": i}, memo) for i, part in enumerate(made)]
        return typed_node(made, cls, arguments, memo)

    def refuse(cls: type, /, **_: object) -> None:
        raise TypeError(
            f"{name} cannot be subclassed; subclass IterDataPipe or MapDataPipe and take a pipe as argument"
        )

    original = ORIGINAL_NAMES.get(name) or f"{name}{'Map' if module.endswith('.map') else 'Iter'}DataPipe"
    made_class: Any = type(
        name, (*mixins, base), {"__module__": module, "__doc__": documented(make, verb), "original": original}
    )
    made_class.__new__ = staticmethod(new)
    made_class.__init_subclass__ = classmethod(refuse)
    made_class.__signature__ = signature.replace(
        parameters=[p.replace(name="datapipe") if p.name == "self" else p for p in signature.parameters.values()]
    )
    if verb and on is not None:
        put_verb(on, verb, made_class, make)
    return made_class  # type: ignore[no-any-return]


def documented(make: Callable[..., Any], verb: str) -> str:
    """The docstring of a class or method: that of the function, the name of the verb, its arguments, an example."""
    text = inspect.cleandoc(make.__doc__ or "")
    if not verb:
        return text
    _, *arguments = inspect.signature(make).parameters.values()
    needed = [a.name for a in arguments if a.default is a.empty and a.kind is not a.VAR_KEYWORD]
    lines = "".join(f"\n    {a}" for a in arguments) or "\n    none"
    return f"{text}\n\n(functional name: ``{verb}``)\n\nArgs:{lines}\n\nExample:\n    pipe.{verb}({', '.join(needed)})"


def put_verb(kind: type[DataPipe[Any]], name: str, cls: type[DataPipe[Any]], make: Callable[..., Any]) -> None:
    """Give pipes of a kind the method that is the same as the class."""
    setattr(kind, name, verb_of(cls, name, documented(make, name), make))
