"""Programs as people write them: no guard around the main part, typed into a pipe, or cell by cell in a notebook.

Functions, lambdas and classes of `__main__` travel by value; the script is never run a second time; and what comes back
is of the very classes that the program knows.
"""

import textwrap
from pathlib import Path

import pytest

from tests.conftest import RunScript
from tests.depth import across

METHODS = ["fork", "server", "forkserver", "spawn"]

PROGRAM = """
    import sys
    import enum, collections, dataclasses, typing
    from headrace import Loader, Pipe
    with open("runs", "a") as runs: runs.write("x")
    # a cell
    @dataclasses.dataclass
    class Sample:
        number: int
        name: str = "?"
    # a cell
    @dataclasses.dataclass(slots=True)
    class Slotted:
        number: int
    class OwnSlots:
        __slots__ = ("number", "__weakref__")
        def __init__(self, number): self.number = number
    class Colour(enum.Enum):
        RED = 1
        BLUE = 2
    class Rights(enum.IntFlag):
        READ = 1
        WRITE = 2
    Point = collections.namedtuple("Point", "x y")
    class Pair(typing.NamedTuple):
        a: int
        b: str
    class Outer:
        class Inner(Sample):
            pass
    class Refused(Exception):
        def __init__(self, number, why):
            super().__init__(f"{number} is refused: {why}")
            self.number = number
    # a cell
    SCALE = 3
    class Data:
        scale = SCALE
        def __len__(self): return 12
        def __getitem__(self, i): return Sample(i * self.scale, str(i))
    # a cell
    def colour(sample):
        return Colour.RED if sample.number % 2 else Colour.BLUE
    def everything(sample):
        n = sample.number
        return [sample, Slotted(n), OwnSlots(n), colour(sample), Rights.READ | Rights.WRITE, Point(n, sample.name),
                Pair(n, sample.name), Outer.Inner(n), {Colour.RED: Sample(n)}]
    KINDS = [Sample, Slotted, OwnSlots, Colour, Rights, Point, Pair, Outer.Inner, dict]
    # a cell
    how = {"workers": 2, "start_method": sys.argv[1], "timeout": 30}
    with Loader(Pipe.of(Data()).map(everything).map(lambda parts: (parts, SCALE)).batch(4), **how) as loader:
        seen = 0
        for batch in loader:
            for parts, scale in batch:
                assert [type(part) for part in parts] == KINDS, parts
                n = seen * scale
                assert parts[0] == Sample(n, str(seen)) and parts[1] == Slotted(n) and parts[2].number == n
                assert parts[3] is (Colour.RED if n % 2 else Colour.BLUE) and parts[4] is Rights.READ | Rights.WRITE
                assert parts[5:7] == [(n, str(seen)), (n, str(seen))] and parts[8] == {Colour.RED: Sample(n)}
                seen += 1
    assert seen == 12
    # a cell
    def refuse(sample):
        if sample.number == 9: raise Refused(sample.number, why="it is nine")
        return sample
    try:
        with Loader(Pipe.of(Data()).map(refuse).batch(2), **how) as loader:
            list(loader)
    except Refused as error:
        assert error.number == 9 and "it is nine" in str(error)
    else:
        raise AssertionError("nothing was refused")
    # a cell
    def local():
        class Local:
            pass
        return lambda sample: (sample, Local)
    # What goes with something that has no name of its own is still of the classes that have one.
    with Loader(Pipe.of(Data()).map(local()), **how) as loader:
        assert all(type(sample) is Sample and kind.__name__ == "Local" for sample, kind in loader)
    # a cell
    @dataclasses.dataclass
    class Sample:
        word: str
    # The same name again, as after an edit in a notebook.
    with Loader(Pipe.of([1, 2]).map(lambda x: Sample(str(x))), **how) as loader:
        assert list(loader) == [Sample("1"), Sample("2")]
    print("all is well")
"""

NOTEBOOK = """
    import sys, types
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    with open("cells") as file:
        cells = file.read().split("# a cell\\n")
    for number, cell in enumerate(cells):
        exec(compile(cell, f"<cell {number}>", "exec"), main.__dict__)
"""


@pytest.mark.parametrize(("method", "form"), across(METHODS, ["script", "piped", "notebook"]))
def test_what_the_main_module_defines_travels_and_comes_back_as_itself(
    run_script: RunScript, tmp_path: Path, method: str, form: str
) -> None:
    if form == "notebook":
        (tmp_path / "cells").write_text(textwrap.dedent(PROGRAM))
    done = run_script(NOTEBOOK if form == "notebook" else PROGRAM, method, piped=form == "piped")
    assert (done.returncode, done.stdout, done.stderr) == (0, "all is well\n", "")
    assert (tmp_path / "runs").read_text() == "x", "the program ran more than once"


@pytest.mark.parametrize("method", ["server", "forkserver", "spawn"])
def test_classes_of_a_namespace_that_is_no_module_come_back_as_themselves(run_script: RunScript, method: str) -> None:
    # As a code runner does that executes its user's text in a dict. (A forked worker has no way to say which class.)
    done = run_script(
        """
        import sys
        CODE = '''
        import dataclasses
        @dataclasses.dataclass(slots=True)
        class Sample:
            number: int
        def make(x): return Sample(x)
        '''
        import textwrap
        names = {"__name__": "__main__"}
        exec(textwrap.dedent(CODE), names)
        from headrace import Loader, Pipe
        with Loader(Pipe.of([1, 2, 3]).map(names["make"]), workers=1, start_method=sys.argv[1], timeout=30) as loader:
            got = list(loader)
        assert got == [names["Sample"](i) for i in (1, 2, 3)], got
        """,
        method,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_variable_may_be_called_as_a_module_of_torchs_that_cannot_be_pickled(run_script: RunScript) -> None:
    done = run_script(
        """
        import torch
        from headrace import Loader, Pipe
        classes, ops, backends = ["cat", "dog"], [1], {"a": 2}
        def load(name):
            return torch.zeros(2), classes.index(name), ops[0], backends["a"]
        with Loader(Pipe.of(["dog"]).map(load), workers=1, timeout=30) as loader:
            assert [sample[1:] for sample in loader] == [(1, 1, 2)]
        """,
        warm=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
