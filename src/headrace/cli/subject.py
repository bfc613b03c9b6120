"""What a verb is about: `FILE:name`, where FILE is a path or a module, and name is in it.

The name may be a Pipe, a Loader, a DataLoader2, a torch-style DataLoader of headrace's, or a function without arguments
that returns one of these. Importing the file must not start the training: what belongs to the program itself stands
under `if __name__ == "__main__"`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.errors import BadOption, meant
from headrace.loader import Loader
from headrace.pipe.graph import Pipe

TAKES = "a Pipe, a Loader, a DataLoader, or a function that returns one"


@dataclass(frozen=True, slots=True)
class Subject:
    """What was named."""

    text: str
    thing: Any
    """A Pipe, a Loader, or another loader with a state."""
    module: str = ""
    """The name under which its file was imported."""

    @property
    def pipe(self) -> Pipe[Any] | None:
        if isinstance(self.thing, Pipe):
            return self.thing
        inner = getattr(self.thing, "pipe", None) or getattr(self.thing, "datapipe", None)
        return inner if isinstance(inner, Pipe) else None

    def known_as(self, fingerprint: list[str]) -> list[str]:
        """The fingerprint in the form it has here, if it was taken where the same file ran as the main program."""
        pipe = self.pipe
        assert pipe is not None
        own = [value for node in pipe.nodes() for value in _named_values(node.op) if value.__module__ == self.module]
        for value in own:
            value.__module__ = "__main__"
        try:
            as_main = pipe.fingerprint()
        finally:
            for value in own:
                value.__module__ = self.module
        return pipe.fingerprint() if fingerprint == as_main else fingerprint

    def loader(self, **changes: object) -> Loader[Any]:
        """A new loader of the pipe, with the options that it was given with and these."""
        pipe = self.pipe
        if pipe is None:
            raise BadOption(
                f"{self.text} is of type {type(self.thing).__name__}, which runs as it is; name a Pipe or a Loader"
            )
        return _made(pipe, self._options(), changes)

    def measurable(self, **changes: object) -> Loader[Any]:
        """The same, and for a DataLoader in torch's form a loader of its parts."""
        if self.pipe is not None or not _in_torchs_form(self.thing):
            return self.loader(**changes)
        from headrace.doors.torch.as_pipe import as_pipe

        return _made(*as_pipe(self.thing), changes)

    def _options(self) -> dict[str, Any]:
        thing = self.thing
        if isinstance(thing, Loader):
            policy = {field.name: getattr(thing.policy, field.name) for field in fields(thing.policy)}
            strands = None if thing.program.indexed else thing.program.strands
            return {
                **policy, "seed": thing.seed, "world": thing.world, "ends": thing.ends, "epoch": thing.epoch,
                "strands": strands,
            }  # fmt: skip
        service = getattr(thing, "reading_service", None)
        return {"workers": getattr(service, "num_workers", 0)}


def _made(pipe: Pipe[Any], given: dict[str, Any], changes: dict[str, Any]) -> Loader[Any]:
    """A loader with the options that were given, as changed."""
    options = {**given, **changes}
    if "workers" in changes and "kind" not in changes and options.get("kind") != "thread":
        options["kind"] = None  # as many workers decide
    if options.get("workers", 0) == 0:
        options["kind"], options["start_method"] = None, None
    if options.get("kind") not in (None, "process"):
        options["start_method"] = None
    return Loader(pipe, **options)


def _in_torchs_form(thing: object) -> bool:
    return all(hasattr(thing, name) for name in ("dataset", "batch_sampler", "collate_fn", "num_workers"))


def find(text: str, *, torchs: bool = False) -> Subject:
    """The thing that `FILE:name` names; a DataLoader of torch's own only if `torchs`."""
    thing, module = _look_up(text)
    if callable(thing) and not isinstance(thing, Pipe | type) and not hasattr(thing, "load_state_dict"):
        try:
            thing = thing()
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise BadOption(f"{text}: a function that is named must take no arguments ({error})") from None
            raise
    fits = isinstance(thing, Pipe) or hasattr(thing, "load_state_dict") or (torchs and _in_torchs_form(thing))
    if isinstance(thing, type) or not fits:
        kind = f"the class {thing.__name__}" if isinstance(thing, type) else f"of type {type(thing).__name__}"
        raise BadOption(f"{text} is {kind}; name {TAKES}")
    return Subject(text, thing, module)


def named(text: str) -> Any:
    """Whatever object `FILE:name` names."""
    return _look_up(text)[0]


def _look_up(text: str) -> tuple[Any, str]:
    file, colon, name = text.rpartition(":")
    if not colon or not file or not name:
        raise BadOption(f"{text!r}: write FILE:name, such as train.py:pipe, where name is {TAKES}")
    module = _module(file)
    thing: Any = module
    for part in name.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            raise BadOption(f"{text}: there is no {part!r} in {file}{_hint(thing, part)}") from None
    return thing, module.__name__


def _named_values(op: object) -> Iterator[Any]:
    """Functions and classes among the fields of an op, which a fingerprint knows by their names."""
    for name in getattr(op, "__dataclass_fields__", {}):
        value = getattr(op, name)
        for part in value if isinstance(value, list | tuple) else (value,):
            if hasattr(part, "__qualname__") and hasattr(part, "__module__"):
                yield part


def _hint(inside: object, name: str) -> str:
    names = [n for n in dir(inside) if not n.startswith("_")]
    if hint := meant(name, names):
        return hint
    fit = [n for n in names if isinstance(getattr(inside, n), Pipe | Loader)]
    return f"; there are {', '.join(fit)}" if fit else ""


def _module(file: str) -> ModuleType:
    path = Path(file)
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise BadOption(f"{file}: there is no such file")
        return _from_path(path.resolve())
    if not all(part.isidentifier() for part in file.split(".")):
        raise BadOption(f"{file}: neither a file nor the name of a module")
    sys.path.insert(0, "")
    try:
        found = importlib.util.find_spec(file)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise BadOption(f"{file}: there is no such module here; write the path of the file, with .py")
    return importlib.import_module(file)


def _from_path(path: Path) -> ModuleType:
    """The file as a module of its own name, so that workers find what is in it the same way."""
    sys.path.insert(0, str(path.parent))
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    taken = importlib.util.find_spec(path.stem)
    if path.stem.isidentifier() and taken is not None and taken.origin == str(path):
        return importlib.import_module(path.stem)
    # Another module has that name: this one is loaded beside it. Since nobody can import it, what it defines travels to
    # workers by value.
    name = f"headrace_subject_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadOption(f"{path}: this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up while they are made
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module
