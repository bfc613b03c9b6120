"""`install()` puts our DataLoader in torch's place, in this process and in those that it starts."""

import multiprocessing

import pytest
import torch.utils.data
import torch.utils.data.dataloader

from headrace.doors.torch.install import install, installed, uninstall
from headrace.doors.torch.loader import DataLoader, TorchLoader
from tests.conftest import RunScript
from tests.depth import depth


def now() -> set[type]:
    return {torch.utils.data.DataLoader, torch.utils.data.dataloader.DataLoader}


def test_inside_it_is_ours_and_outside_torchs() -> None:
    assert now() == {TorchLoader}
    with installed():
        assert now() == {DataLoader}
        with installed():
            assert now() == {DataLoader}
        assert now() == {DataLoader}
        assert issubclass(torch.utils.data.DataLoader, TorchLoader)
    assert now() == {TorchLoader}
    with pytest.raises(ZeroDivisionError), installed():
        raise ZeroDivisionError
    assert now() == {TorchLoader}


def test_it_stays_until_it_is_taken_out() -> None:
    try:
        install()
        install()
        assert now() == {DataLoader}
    finally:
        uninstall()
    assert now() == {TorchLoader}
    uninstall()
    assert now() == {TorchLoader}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_that_are_started_have_it_too(method: str, run_script: RunScript) -> None:
    """Reduced: new interpreters are not asked again after `uninstall`, which takes back what all of them are given."""
    done = run_script(
        """
        import multiprocessing, sys

        def tell():
            import torch.utils.data
            print(torch.utils.data.DataLoader.__module__, flush=True)

        if __name__ == "__main__":
            from headrace.doors.torch.install import install, uninstall

            methods = sys.argv[1:]
            for put, method in zip((install, uninstall), methods):
                put()
                process = multiprocessing.get_context(method).Process(target=tell)
                process.start()
                process.join()
        """,
        method,
        depth("fork", method),
        timeout=110,
        warm=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["headrace.doors.torch.loader", "torch.utils.data.dataloader"]
