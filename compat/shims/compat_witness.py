"""Puts headrace in the place of the originals in every process of a run, and writes down that it was there.

`begin` is called by the interpreter itself as it starts (a .pth file of the environment), so no process can miss it,
however it was started. Each process has a file of its own in the witness's folder, with lines such as

    started   <what was run>
    name      torch.utils.data.DataLoader headrace.doors.torch.loader
    used      headrace.doors.torch.loader.DataLoader
    foreign   torch.utils.data.dataloader._SingleProcessDataLoaderIter
    unseen    python -S ...

The run fails without `used`, and with any `foreign`, `unseen`, or `name` that is not headrace's (compat/proof.py).
"""

import builtins
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_written: dict[int, set[str]] = {}
_folder = ""
_names: tuple[str, ...] = ()


def begin(suite: str, folder: str, original: str, names: tuple[str, ...]) -> None:
    """`original` is the folder of the original package, from which parts may be kept (Names.kept); `names` are those
    whose owner is written down."""
    global _folder, _names
    _folder, _names = folder, names
    write("started", " ".join(getattr(sys, "orig_argv", sys.argv))[:200])
    os.register_at_fork(after_in_child=_forked)
    sys.addaudithook(_watch_programs)
    sys.meta_path.insert(0, _Finder(suite, original))


def _forked() -> None:
    write("started", "a fork")
    for line in _written.get(os.getppid(), ()):
        kind, _, said = line.partition("\t")
        if kind == "name":  # the modules came along
            write(kind, said)


def write(what: str, said: str) -> None:
    """Each line once a process."""
    line = f"{what}\t{' '.join(said.split())}\n"
    mine = _written.setdefault(os.getpid(), set())
    if line in mine:
        return
    mine.add(line)
    with open(os.path.join(_folder, str(os.getpid())), "a") as file:
        file.write(line)


def _watch_programs(event: str, arguments: tuple[Any, ...]) -> None:
    """A Python that is started so that it does not see its environment, or another Python, would not be ours."""
    if event != "subprocess.Popen":
        return
    command = [os.fsdecode(word) for word in arguments[1]] if not isinstance(arguments[1], str | bytes) else []
    program = os.path.basename(os.fsdecode(arguments[0] or (command or [""])[0]))
    if program.startswith("python") and (
        "-S" in command[1:4] or os.path.abspath(os.fsdecode(arguments[0])) != os.path.abspath(sys.executable)
    ):
        write("unseen", " ".join(command)[:200])


class _Finder(importlib.abc.MetaPathFinder):
    """Answers for the modules that ours replace, and follows the import of torch with our replacements in it."""

    def __init__(self, suite: str, original: str) -> None:
        from compat_names import MODULES

        self.suite, self.original = suite, original
        self.modules = MODULES[suite]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.modules and self.modules[fullname].kept:
            kept = os.path.join(self.original, self.modules[fullname].kept)
            return importlib.util.spec_from_file_location(fullname, kept)
        if fullname in self.modules:
            return importlib.util.spec_from_loader(fullname, _Renamed(self.modules[fullname]), is_package=True)
        after = _AFTER.get((self.suite, fullname))
        if after is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        spec.loader = _Followed(spec.loader, after)
        return spec


class _Renamed(importlib.abc.Loader):
    def __init__(self, names: Any) -> None:
        self.names = names

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from compat_names import Private

        for source in self.names.sources:
            theirs = importlib.import_module(source)
            for name in theirs.__all__:
                setattr(module, name, getattr(theirs, name))
        for name, at in self.names.renamed:
            home, _, attribute = at.partition(":")
            setattr(module, name, getattr(importlib.import_module(home), attribute))
        for name in self.names.private:
            setattr(module, name, Private(f"{module.__name__}.{name}"))
        module.__file__ = __file__
        for name in list(vars(module)):
            told(f"{module.__name__}.{name}", getattr(module, name))
        _AT_USE.get(module.__name__, lambda: None)()


class _Followed(importlib.abc.Loader):
    """The loader of somebody else's module, and what is done after it."""

    def __init__(self, loader: Any, after: Callable[[], None]) -> None:
        self.loader, self.after = loader, after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        if not _half_imported():
            self.after()
            return
        # It was headrace that imported torch: ours can be put in its place once the module that did so is whole.
        real = builtins.__import__

        def imported(*args: Any, **kwargs: Any) -> Any:
            found = real(*args, **kwargs)
            if builtins.__import__ is imported and not _half_imported():
                builtins.__import__ = real
                self.after()
            return found

        builtins.__import__ = imported

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _half_imported() -> bool:
    """Whether a module of headrace's is being imported at this moment."""
    specs = [module.__spec__ for name, module in list(sys.modules.items()) if name.split(".")[0] == "headrace"]
    return any(getattr(spec, "_initializing", False) for spec in specs)


def told(path: str, value: Any) -> None:
    """Write down whose a name is."""
    if path in _names:
        write("name", f"{path} {value.__module__}")


def count(owner: type, method: str) -> None:
    """Write down that a class of ours was used, when `method` is called. It is wrapped where it is defined, so that
    code which compares methods of classes sees no difference."""
    owner = next(kind for kind in owner.__mro__ if method in vars(kind))
    assert owner.__module__.startswith("headrace."), f"{method} is not headrace's but {owner.__module__}'s"
    real = vars(owner)[method]

    @functools.wraps(real)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        write("used", f"{owner.__module__}.{owner.__qualname__}")
        return real(self, *args, **kwargs)

    setattr(owner, method, counted)


def _count_dataloader2() -> None:
    import headrace

    count(headrace.DataLoader2, "__iter__")


def _count_pipes() -> None:
    import headrace

    count(headrace.IterDataPipe, "__iter__")


def _count_stateful() -> None:
    from headrace.doors.torch.install import StatefulDataLoader

    count(StatefulDataLoader, "_get_iterator")
    _watch_iterators(StatefulDataLoader, replaced=False)


def _count_swift() -> None:
    import headrace

    count(headrace.SwiftLoader, "start")


def _replace_loader() -> None:
    """`torch.utils.data.DataLoader` is ours, as a user makes it so."""
    import headrace

    headrace.install()
    import torch.utils.data

    told("torch.utils.data.DataLoader", torch.utils.data.DataLoader)
    told("torch.utils.data.dataloader.DataLoader", torch.utils.data.dataloader.DataLoader)
    count(headrace.DataLoader, "_get_iterator")
    _watch_iterators(headrace.DataLoader)


def _watch_iterators(ours: type, replaced: bool = True) -> None:
    """Torch's own iterators may run for nobody; a loader of ours gives torch's own graphs of pipes to them. Ours extend
    torch's class, which trainers look for."""
    import torch.utils.data.dataloader as theirs
    from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

    real = theirs._BaseDataLoaderIter.__init__

    def watched(self: Any, loader: Any) -> None:
        # (Where torch's own loader is not replaced, a test that makes one means it.)
        if not type(self).__module__.startswith("headrace.") and (replaced or isinstance(loader, ours)):
            pipes = isinstance(loader.dataset, IterDataPipe | MapDataPipe)
            what = "delegated" if isinstance(loader, ours) and pipes else "foreign"
            write(what, f"{type(self).__module__}.{type(self).__qualname__} of {type(loader).__module__}")
        real(self, loader)

    theirs._BaseDataLoaderIter.__init__ = watched


def _replace_pipes() -> None:
    """Every public name of torch's DataPipes is headrace's, or gone. The modules in which torch's own classes are
    written keep theirs: torch's DataLoader needs them."""
    _replace_loader()  # first: our door to torch imports torch's own names
    import torch.utils.data.datapipes as theirs
    import torch.utils.data.graph
    import torch.utils.data.graph_settings
    from compat_names import Private
    from torch.utils.data.datapipes.datapipe import _IterDataPipeMeta

    import headrace.datapipes as ours
    from headrace.datapipes import graph

    def foreign(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # (A private class is a wrapper that torch puts around any pipe which it is given.)
        if cls.__module__.startswith("torch.utils.data.") and not cls.__name__.startswith("_"):
            write("foreign", f"{cls.__module__}.{cls.__qualname__}")
        return type.__call__(cls, *args, **kwargs)

    _IterDataPipeMeta.__call__ = foreign
    for name in ("CaptureDataFrame", "dataframe_wrapper"):
        setattr(theirs.dataframe, name, Private(f"torch.utils.data.datapipes.dataframe.{name}"))
    # Pipes of ours know the verbs that were registered with torch, for users who have some. Torch's own are not wanted.
    theirs.datapipe.IterDataPipe.functions.clear()
    theirs.datapipe.MapDataPipe.functions.clear()
    for here, there in (
        (ours.iter, theirs.iter),
        (ours.map, theirs.map),
        (ours, torch.utils.data),
        (ours, theirs.iter.sharding),
        (ours.utils, theirs.utils.common),
        (graph, torch.utils.data.graph),
        (graph, torch.utils.data.graph_settings),
    ):
        for name in [name for name in vars(there) if not name.startswith("__")]:
            value = getattr(there, name)
            if isinstance(value, ModuleType) or not str(getattr(value, "__module__", "")).startswith(
                ("torch.utils.data.datapipes", "torch.utils.data.graph")
            ):
                continue
            if name in here.__all__:
                setattr(there, name, getattr(here, name))
                told(f"{there.__name__}.{name}", getattr(here, name))
            elif there is theirs.iter or there is theirs.map:
                setattr(there, name, Private(f"{there.__name__}.{name}"))
    _count_pipes()


_AFTER: dict[tuple[str, str], Callable[[], None]] = {
    ("torch", "torch"): _replace_loader,
    ("datapipes", "torch"): _replace_pipes,
}
"""(suite, module): what is done when the module has been imported."""

_AT_USE: dict[str, Callable[[], None]] = {
    "torchdata.dataloader2": _count_dataloader2,
    "torchdata.datapipes": _count_pipes,
    "torchdata.stateful_dataloader": _count_stateful,
    "swift_loader": _count_swift,
}
