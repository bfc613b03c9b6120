"""The plan of the house: who may import whom, and which room may touch a dangerous thing.

Both are data, at the top; change a row there when the house changes, with the reason. The rules are about text, not
about running: an import counts wherever it stands, inside a function or under TYPE_CHECKING too.
"""

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import RunScript

SRC = Path(__file__).resolve().parents[2] / "src"

# A module imports only from lower rows and from its own part. From the roof down; a part is a module or a folder, or
# several that are one thing (joined by a space).
ROWS: list[list[str]] = [
    ["headrace.cli headrace.__main__"],
    ["headrace headrace.datapipes headrace.replicas"],  # lists of public names
    [
        "headrace.doors",
        "headrace.measuring",
        "headrace.observe.profile headrace.observe.report",
        "headrace.testing",
    ],
    ["headrace.loader"],
    ["headrace.observe.lineage", "headrace.sharing"],  # what a loader says about its past, how ranks share its epochs
    ["headrace.engine", "headrace.device", "headrace.ranks headrace.launch"],
    ["headrace.pipe"],  # the graph, its verbs by domain, and the graph opened
    ["headrace.ops headrace.sources headrace.tables"],
    ["headrace.op headrace.inputs"],
    ["headrace.context"],
    ["headrace.plan", "headrace.observe", "headrace.memory"],
    ["headrace.brief", "headrace.errors", "headrace.nested", "headrace.tracebacks"],
    ["headrace.secrets"],  # what messages may show of a URL
]

# Public methods that are doors to a higher row, imported inside the method only: (importer, imported) -> why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("headrace.pipe.graph", "headrace.engine.explain"): "pipe.explain() shows the plan that the engine would make",
    ("headrace.plan.world", "headrace.ranks.detect"): "World.detect() is where users look for it",
    ("headrace.plan.world", "headrace.ranks.first"): "World.first() is where users look for it",
}


@dataclass(frozen=True)
class Danger:
    """Dotted names that only some rooms may touch; `late` rooms may touch them inside functions only."""

    things: tuple[str, ...]
    rooms: tuple[str, ...]
    late: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()


DANGERS: dict[str, Danger] = {
    "environment": Danger(
        ("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv"),
        # A worker that a server forks is given the environment of its consumer.
        rooms=(
            "ranks/env.py",
            "tracebacks.py",  # one variable, looked at when an error is shown
            "cli/*",
            "engine/workers/process/fork_server.py",
            "engine/workers/process/server.py",
            "engine/workers/process/heap.py",
            "engine/workers/process/threads.py",  # one thread, for what a worker imports later
        ),
    ),
    "processes": Danger(
        ("multiprocessing", "signal", "os.fork", "os.forkpty", "os.kill", "os.killpg"),
        rooms=("engine/workers/*", "launch/*"),
        harmless=("multiprocessing.shared_memory", "multiprocessing.resource_tracker"),  # the rule "memory" has these
    ),
    "memory": Danger(
        ("mmap", "os.memfd_create", "multiprocessing.shared_memory", "multiprocessing.resource_tracker", "_posixshmem"),
        rooms=("memory/*",),
    ),
    "pickle": Danger(
        ("pickle", "cloudpickle", "marshal", "shelve", "copyreg"),
        rooms=("engine/wire/*", "engine/workers/*"),
        late=("sources/stored/pickles.py",),  # formats that hold pickles, where the user trusts them
    ),
    "chance": Danger(
        ("random", "numpy.random"),
        # The torch door seeds as torch does, and notices who draws.
        rooms=(
            "plan/seed.py",
            "plan/keyed.py",
            "doors/torch/seeds.py",
            "doors/torch/context.py",
            "doors/torch/side_effects.py",
        ),
        harmless=("numpy.random.Generator",),  # the type that users receive
    ),
    "torch": Danger(
        ("torch",),
        rooms=("doors/torch/*", "device.py", "ranks/*", "launch/*"),
        # (A forked worker tells torch that its threads are gone.)
        late=(
            "engine/workers/process/threads.py",
            "engine/wire/*",
            "tables/*",
            "ops/shape/collate.py",
            "ops/shape/ragged.py",
            "plan/seed.py",
            "ops/media/pixels.py",  # resizes with it where the user asks for it
            "memory/*",
            "doors/*",
        ),
    ),
    "ray": Danger(("ray",), rooms=("engine/workers/ray/*", "ranks/detect.py")),
    "print": Danger(("print",), rooms=("cli/*",)),
}


@dataclass(frozen=True)
class Touch:
    """A dotted name that a file touches, where, and whether only when a function runs."""

    name: str
    line: int
    late: bool


class Reader(ast.NodeVisitor):
    """Collects every import and every dotted name of a module, with the names of imports resolved."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.package = module if is_package else module.rpartition(".")[0]
        self.names: dict[str, str] = {"print": "print", "__import__": "__import__"}
        self.imports: list[Touch] = []
        self.touches: list[Touch] = []
        self.depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imported(alias.name, node)
            self.names[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            source = ".".join([*above, source] if source else above)
        for alias in node.names:
            self.imported(f"{source}.{alias.name}", node)
            self.names[alias.asname or alias.name] = f"{source}.{alias.name}"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if name := self.dotted(node):
            self.touch(name, node)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if name := self.dotted(node):
            self.touch(name, node)

    def visit_Call(self, node: ast.Call) -> None:
        if self.dotted(node.func) in ("importlib.import_module", "__import__", "sys.modules.get"):
            self.by_text(node.args[0], node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self.dotted(node.value) == "sys.modules":
            self.by_text(node.slice, node)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if self.dotted(node.comparators[0]) == "sys.modules":
            self.by_text(node.left, node)
        self.generic_visit(node)

    def dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute) and (front := self.dotted(node.value)):
            return f"{front}.{node.attr}"
        return None

    def by_text(self, node: ast.expr, place: ast.expr) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.touch(node.value, place)

    def imported(self, name: str, node: ast.stmt) -> None:
        self.imports.append(Touch(name, node.lineno, self.depth > 0))
        self.touch(name, node)

    def touch(self, name: str, node: ast.expr | ast.stmt) -> None:
        self.touches.append(Touch(name, node.lineno, self.depth > 0))


def read(room: str, source: str) -> Reader:
    reader = Reader(module_of(room), is_package=room.endswith("__init__.py"))
    tree = ast.parse(source)
    # Imports first: a function may use a name that is imported further down.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            reader.visit(node)
    reader.imports.clear()
    reader.touches.clear()
    reader.visit(tree)
    return reader


def under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def dangers(room: str, source: str) -> Iterator[str]:
    for touch in read(room, source).touches:
        for danger, rule in DANGERS.items():
            if not under(touch.name, rule.things) or under(touch.name, rule.harmless):
                continue
            if any(fnmatch(room, glob) for glob in rule.rooms):
                continue
            if touch.late and any(fnmatch(room, glob) for glob in rule.late):
                continue
            when = " (inside functions only)" if any(fnmatch(room, glob) for glob in rule.late) else ""
            allowed = ", ".join(rule.rooms + rule.late)
            yield f"{room}:{touch.line} touches {touch.name}; {danger}: only {allowed}{when}"


def place(module: str) -> tuple[int, str]:
    """The row of a module and its part of it: the longest name in ROWS that the module lies under."""
    names = [(name, row, part) for row, parts in enumerate(ROWS) for part in parts for name in part.split()]
    _, row, part = max((entry for entry in names if under(module, (entry[0],))), key=lambda entry: len(entry[0]))
    return row, part


def module_of(room: str) -> str:
    return ".".join(["headrace", *Path(room).with_suffix("").parts]).removesuffix(".__init__")


def climbs(room: str, source: str) -> Iterator[str]:
    module = module_of(room)
    row, part = place(module)
    if module == "headrace":
        return  # the list of public names sees everything
    for touch in read(room, source).imports:
        if not under(touch.name, ("headrace",)):
            continue
        target_row, target_part = place(touch.name)
        if target_row > row or target_part == part:
            continue
        if not touch.late or not any(module == a and under(touch.name, (b,)) for a, b in EXCEPTIONS):
            yield f"{room}:{touch.line} imports {touch.name}; {module} may import only lower rows and its own part"


def rooms() -> list[str]:
    return sorted(str(path.relative_to(SRC / "headrace")) for path in (SRC / "headrace").rglob("*.py"))


def test_a_module_imports_only_what_is_below_it() -> None:
    found = [line for room in rooms() for line in climbs(room, (SRC / "headrace" / room).read_text())]
    assert not found, "\n".join(found)


def test_a_dangerous_thing_is_touched_in_its_own_room_only() -> None:
    found = [line for room in rooms() for line in dangers(room, (SRC / "headrace" / room).read_text())]
    assert not found, "\n".join(found)


def test_every_module_has_a_place_in_the_house() -> None:
    parts = tuple(name for row in ROWS for part in row for name in part.split() if name != "headrace")
    homeless = [room for room in rooms() if room != "__init__.py" and not under(module_of(room), parts)]
    assert not homeless, f"these need a row in ROWS: {homeless}"


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("ops/shape/map.py", "from headrace.engine import run"),
        ("ops/shape/map.py", "from ...engine.run import loop"),
        ("ops/shape/map.py", "from headrace import Loader"),
        ("plan/order.py", "def f():\n    import headrace.op"),
        ("pipe/graph.py", "from headrace.engine.explain import explain"),
        ("engine/run.py", "from headrace.device import pin"),
        ("engine/__init__.py", "from ..loader import Loader"),
        ("observe/meter.py", "from headrace.observe.report import table"),
        ("loader.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .doors.torch import DataLoader"),
    ],
)
def test_an_import_of_something_above_is_seen(room: str, source: str) -> None:
    assert len(list(climbs(room, source))) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("ops/shape/map.py", "from headrace.op import Op\nfrom .batch import Batch\nfrom ...plan.seed import rng"),
        ("plan/order.py", "from headrace.errors import BadOption"),
        ("engine/workers/process/workers.py", "from ..deaths import Deaths\nfrom headrace.observe.meter import Meter"),
        ("cli/__init__.py", "from headrace import Loader\nimport os.path"),
        ("pipe/graph.py", "def f():\n    from headrace.engine.explain import explain"),
    ],
)
def test_an_import_of_something_below_is_free(room: str, source: str) -> None:
    assert not list(climbs(room, source))


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("engine/run.py", "import os\nx = os.environ['RANK']"),
        ("engine/run.py", "from os import getenv"),
        ("loader.py", "import multiprocessing.connection as c"),
        ("engine/run.py", "import os\ndef f():\n    os.kill(1, 9)"),
        ("engine/wire/codec.py", "from multiprocessing.shared_memory import SharedMemory"),
        ("engine/run.py", "import os\nos.memfd_create('x')"),
        ("pipe/graph.py", "import cloudpickle"),
        ("ops/order/shuffle.py", "import numpy as np\ndef f():\n    np.random.shuffle([])"),
        ("ops/order/shuffle.py", "from random import shuffle"),
        ("engine/wire/codec.py", "import torch"),
        ("pipe/graph.py", "def f():\n    import torch"),
        ("pipe/graph.py", "import sys\nt = sys.modules.get('torch')"),
        ("pipe/graph.py", "import sys\nt = 'torch' in sys.modules"),
        ("pipe/graph.py", "import importlib\nt = importlib.import_module('torch.utils')"),
        ("engine/workers/process/workers.py", "import ray"),
        ("engine/run.py", "def f():\n    print('here')"),
    ],
)
def test_a_dangerous_thing_in_the_wrong_room_is_seen(room: str, source: str) -> None:
    assert list(dangers(room, source))


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("ranks/env.py", "import os\nx = os.environ.get('RANK')"),
        ("engine/workers/process/fork.py", "import os, signal\nos.fork()"),
        ("memory/arena.py", "from multiprocessing import shared_memory\nimport mmap"),
        ("engine/wire/codec.py", "import pickle, sys\ndef f():\n    return sys.modules.get('torch')"),
        ("ops/order/shuffle.py", "import numpy as np\ndef f(rng: np.random.Generator): rng.shuffle([])"),
        ("ops/shape/map.py", "def f(random, here): return random.random(), here.print()"),
        ("doors/torch/loader.py", "import torch"),
        ("cli/run.py", "print('hello')"),
    ],
)
def test_a_dangerous_thing_in_its_own_room_is_free(room: str, source: str) -> None:
    assert not list(dangers(room, source))


def test_the_public_list_is_sorted_and_every_name_resolves() -> None:
    package = importlib.import_module("headrace")
    assert list(package.__all__) == sorted(set(package.__all__))
    assert not [name for name in package.__all__ if not hasattr(package, name)]


def test_importing_headrace_loads_neither_numpy_nor_torch(run_script: RunScript) -> None:
    done = run_script("import sys, headrace; print(sorted({'numpy', 'torch', 'cloudpickle'} & set(sys.modules)))")
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
