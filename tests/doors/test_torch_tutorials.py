"""Ten programs out of torch's own pages give with our loader what they give with torch's."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from headrace import DataLoader
from tests.doors.torch_tutorials import PROGRAMS, Program


@pytest.mark.filterwarnings("ignore:the 2 workers all read the same samples")  # ours says it; torch does not
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_of_torchs_pages_sees_the_same(program: Program, tmp_path: Path) -> None:
    import torch.utils.data

    (tmp_path / "torch").mkdir()
    (tmp_path / "ours").mkdir()
    assert program(DataLoader, tmp_path / "ours") == program(torch.utils.data.DataLoader, tmp_path / "torch")
