"""What each public entry point imports: a budget of modules, counted, because times depend on the machine.

A first batch waits for these. Before you raise a budget, look whether what is new can be imported where it is used.
"""

import pytest

from tests.conftest import RunScript

BUDGETS = {
    "import headrace": 30,
    "from headrace import Loader, Pipe": 169,
    "import headrace.engine.workers.process.workers": 158,
    "import headrace.engine.workers.process.server": 137,
}
"""How many modules, the standard library's among them, may be loaded more than in an interpreter that does nothing."""
NEVER = ("numpy", "torch", "pyarrow", "cloudpickle", "multiprocessing", "asyncio", "tempfile", "json", "urllib")
"""What none of them may load."""


@pytest.mark.parametrize("entry", BUDGETS)
def test_an_entry_point_imports_no_more_than_its_budget(entry: str, run_script: RunScript) -> None:
    code = f"import sys\nbefore = {{*sys.modules}}\n{entry}\nprint(*sorted({{*sys.modules}} - before))"
    loaded = run_script(code).stdout.split()
    assert not {*NEVER} & {*loaded}
    assert len(loaded) <= BUDGETS[entry], loaded
