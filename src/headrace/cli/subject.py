"""The argument `FILE:name` of a verb: FILE is a path or a module, and name is something in it.

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

from headrace.engine.policy import Policy
from headrace.errors import BadOption, meant
from headrace.loader import Loader
from headrace.pipe.graph import Pipe

TAKES = "a Pipe, a Loader, a DataLoader, or a function that returns one"


@dataclass(frozen=True, slots=True)
class Subject:
    """What `FILE:name` names."""

    text: str
    """`FILE:name` itself."""
    target: Any
    """A Pipe, a Loader, or another loader with a state."""
    module: str = ""
    """The name under which FILE was imported."""

    @property
    def pipe(self) -> Pipe[Any] | None:
        if isinstance(self.target, Pipe):
            return self.target
        inner = getattr(self.target, "pipe", None) or getattr(self.target, "datapipe", None)
        return inner if isinstance(inner, Pipe) else None

    def known_as(self, fingerprint: list[str]) -> list[str]:
        """A fingerprint of this pipe that was taken while the same file ran as the main program, in the form that it
        has here: functions of the file are of the module `__main__` there. Any other fingerprint stays as it is."""
        pipe = self.pipe
        assert pipe is not None
        of_file = [v for node in pipe.nodes() for v in _named_values(node.op) if v.__module__ == self.module]
        for value in of_file:
            value.__module__ = "__main__"
        try:
            as_main = pipe.fingerprint()
        finally:
            for value in of_file:
                value.__module__ = self.module
        return pipe.fingerprint() if fingerprint == as_main else fingerprint

    def loader(self, **changes: object) -> Loader[Any]:
        """A new loader of the pipe, with the options of the loader that was named and these changes."""
        pipe = self.pipe
        if pipe is None:
            raise BadOption(
                f"{self.text} is of type {type(self.target).__name__}, which runs as it is; name a Pipe or a Loader"
            )
        return _make(pipe, self._options(), changes)

    def measurable(self, **changes: object) -> Loader[Any]:
        """As `loader`, and also for a DataLoader with torch's attributes: a loader of its dataset and sampler."""
        if self.pipe is not None or not _is_torch_like(self.target):
            return self.loader(**changes)
        from headrace.doors.torch.as_pipe import as_pipe

        return _make(*as_pipe(self.target), changes)

    def _options(self) -> dict[str, Any]:
        target = self.target
        if isinstance(target, Loader):
            policy = {field.name: getattr(target.policy, field.name) for field in fields(target.policy)}
            strands = None if target.program.indexed else target.program.strands
            return {
                **policy, "seed": target.seed, "world": target.world, "ends": target.ends, "epoch": target.epoch,
                "strands": strands,
            }  # fmt: skip
        service = getattr(target, "reading_service", None)
        return {"workers": getattr(service, "num_workers", 0)}


def _make(pipe: Pipe[Any], options: dict[str, Any], changes: dict[str, Any]) -> Loader[Any]:
    """A loader with these options and changes; a kind or start method that the changes rule out is dropped.

    The options of a door's loader may be more than those of a Loader.
    """
    options = {**options, **changes}
    if not options.get("workers") or (options.get("kind") == "inline" and "kind" not in changes):
        options["kind"] = None  # follows from the number of workers
    if not options.get("workers") or options.get("kind") not in (None, "process"):
        options["start_method"] = None
    names = {field.name for field in fields(Policy)}
    policy = Policy.of({name: value for name, value in options.items() if name in names})
    return Loader.of(pipe, policy, **{name: value for name, value in options.items() if name not in names})


def _is_torch_like(target: object) -> bool:
    return all(hasattr(target, name) for name in ("dataset", "batch_sampler", "collate_fn", "num_workers"))


def find(text: str, *, torchs: bool = False) -> Subject:
    """What `FILE:name` names; a DataLoader of torch's own only if `torchs`."""
    target, module = _look_up(text)
    if callable(target) and not isinstance(target, Pipe | type) and not hasattr(target, "load_state_dict"):
        try:
            target = target()
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise BadOption(f"{text}: a function that is named must take no arguments ({error})") from None
            raise
    fits = isinstance(target, Pipe) or hasattr(target, "load_state_dict") or (torchs and _is_torch_like(target))
    if isinstance(target, type) or not fits:
        kind = f"the class {target.__name__}" if isinstance(target, type) else f"of type {type(target).__name__}"
        raise BadOption(f"{text} is {kind}; name {TAKES}")
    return Subject(text, target, module)


def named(text: str) -> Any:
    """Whatever object `FILE:name` names."""
    return _look_up(text)[0]


def _look_up(text: str) -> tuple[Any, str]:
    file, colon, name = text.rpartition(":")
    if not colon or not file or not name:
        raise BadOption(f"{text!r}: write FILE:name, such as train.py:pipe, where name is {TAKES}")
    module = _module(file)
    target: Any = module
    for part in name.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise BadOption(f"{text}: there is no {part!r} in {file}{_hint(target, part)}") from None
    return target, module.__name__


def _named_values(op: object) -> Iterator[Any]:
    """Functions and classes among the fields of an op: a fingerprint holds their names and their module."""
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
    """The file, imported under its own name, so that workers can import it by the same name."""
    sys.path.insert(0, str(path.parent))
    found = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    if found is not None and found.origin == str(path):
        return importlib.import_module(path.stem)
    # Another module has that name, or no module can have it: the file is loaded under a made-up name. No worker can
    # import that, so what the file defines travels to workers by value.
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
