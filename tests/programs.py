"""Programs that some tests need, and how to install them; `scripts/test --integrations` does so where it may."""

import shutil

import pytest


def needs_program(program: str, package: str) -> pytest.MarkDecorator:
    """Skip a test where a program is not installed, and say how to install it."""
    how = f"{program} is not installed: apt-get install --no-install-recommends {package}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=how)


needs_mpirun = needs_program("mpirun", "openmpi-bin")
needs_chromium = needs_program("chromium", "chromium")
