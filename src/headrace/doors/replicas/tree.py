"""Batches as trees: arrays at the leaves, containers around them.

Dicts, tuples, named tuples, dataclasses and lists are containers, and so is any class with a registered parser. A list
without an array or a container in it is a leaf of its own: a column of strings, say, one per sample.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from headrace.errors import BadOption
from headrace.nested import is_container, rebuilt

Leaf = Callable[[Any], Any]


class ICustomArgParser:
    """How a batch class of the user's own is taken apart and put together."""

    def yieldTensors(self, struct: object) -> Iterator[Any]:
        """Every tensor of the batch, in a fixed order."""
        raise NotImplementedError(f"{type(self).__name__} must define yieldTensors()")

    def reconstruct(self, original_structure: object, tensor_iterator: Iterator[Any]) -> Any:
        """A batch like `original_structure` with other tensors, in that order."""
        raise NotImplementedError(f"{type(self).__name__} must define reconstruct()")


_PARSERS: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(type_: type, parser: ICustomArgParser) -> None:
    """Batches of this class, and of classes below it, are taken apart by `parser`."""
    if not isinstance(type_, type) or not isinstance(parser, ICustomArgParser):
        raise BadOption("registerCustomArgParser() takes a class and an ICustomArgParser for it")
    _PARSERS[type_] = parser


def mapped(tree: object, leaf: Leaf, plain: type[Any] = tuple) -> Any:
    """The same tree with `leaf` applied to its leaves; tuples without names become `plain`."""
    if (parser := _parser(tree)) is not None:
        return parser.reconstruct(tree, iter([leaf(t) for t in parser.yieldTensors(tree)]))
    if not is_container(tree) or (isinstance(tree, list) and not any(map(_nests, tree))):
        return leaf(tree)
    made = rebuilt(tree, lambda part: mapped(part, leaf, plain))
    return plain(made) if type(made) is tuple else made


def ordered_as(tree: Any, like: Any) -> Any:
    """The same leaves, with the keys of dicts in the order that they have in `like`; other keys are an error."""
    if _parser(tree) is not None:
        return tree
    if isinstance(tree, Mapping) and isinstance(like, Mapping):
        if tree.keys() != like.keys():
            raise BadOption(f"micro-batches with the keys {list(tree)} and {list(like)} cannot be joined to one step")
        return {key: ordered_as(tree[key], like[key]) for key in like}
    if isinstance(tree, list | tuple) and isinstance(like, list | tuple) and len(tree) == len(like):
        return (tuple if isinstance(tree, tuple) else list)(map(ordered_as, tree, like))
    return tree


def rows(tree: object) -> int:
    """How many samples a batch holds: the first extent, which all its leaves must share."""
    found: list[int] = []
    mapped(tree, lambda leaf: found.append(_extent(leaf)))
    if not found:
        raise BadOption("this batch holds no array, so it has no samples to count")
    if min(found) != max(found):
        raise BadOption(
            f"the parts of this batch hold {min(found)} to {max(found)} samples; all must have the same first extent"
        )
    return found[0]


def sliced(tree: object, start: int, stop: int) -> Any:
    """The samples start..stop of a batch, without a copy where the leaves allow it."""
    return mapped(tree, itemgetter(slice(start, stop)))


def spread(tree: object) -> Iterator[Any]:
    """The samples of a batch, one by one."""
    for i in range(rows(tree)):
        yield mapped(tree, itemgetter(i))


def _extent(leaf: object) -> int:
    if isinstance(leaf, list):
        return len(leaf)
    shape = getattr(leaf, "shape", None)
    if not shape:
        raise BadOption(
            f"a batch holds arrays with a first extent, not {type(leaf).__name__}; "
            "for a class of your own use registerCustomArgParser()"
        )
    return int(shape[0])


def _nests(part: object) -> bool:
    return is_container(part) or getattr(part, "shape", None) is not None or _parser(part) is not None


def _parser(tree: object) -> ICustomArgParser | None:
    return next((_PARSERS[kind] for kind in type(tree).__mro__ if kind in _PARSERS), None)
