"""The suites: where their tests are in a checkout, what the original is, and which of its names are headrace's."""

from dataclasses import dataclass

TORCH = "torch==2.13.0"


@dataclass(frozen=True, slots=True)
class Suite:
    """`tests` are files and folders below `folder` of the checkout; `without` are those that are left out.

    `original` is what the original side has and ours has not: a requirement, or a folder of the checkout (`./name`),
    or nothing where it is torch itself.
    """

    name: str
    title: str
    folder: str
    tests: tuple[str, ...]
    original: str | None
    without: tuple[str, ...] = ()
    seconds: float = 120
    """The time limit of one test."""
    replaced: tuple[str, ...] = ()
    """The names that must be headrace's on our side, as dotted paths."""


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "torchdata",
            "TorchData 0.9: DataPipes and DataLoader2",
            "test",
            (".",),
            "torchdata==0.9.0",
            # A suite of its own below; torchtext and torchaudio datasets; a style check.
            without=("stateful_dataloader", "test_audio_examples.py", "test_text_examples.py", "smoke_test", "bin"),
            replaced=("torchdata.dataloader2.DataLoader2", "torchdata.datapipes.iter.IterDataPipe"),
        ),
        Suite(
            "torch",
            "torch: DataLoader",
            "test",
            ("test_dataloader.py",),
            None,
            seconds=900,
            replaced=("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"),
        ),
        Suite(
            "datapipes",
            "torch: DataPipes",
            "test",
            ("test_datapipe.py",),
            None,
            replaced=(
                "torch.utils.data.IterDataPipe",
                "torch.utils.data.datapipes.iter.Mapper",
                "torch.utils.data.DataLoader",
            ),
        ),
        Suite(
            "stateful",
            "torchdata 0.11: StatefulDataLoader",
            "test/stateful_dataloader",
            ("test_state_dict.py", "test_sampler.py", "test_incremental_state.py"),
            "torchdata==0.11.0",
            replaced=("torchdata.stateful_dataloader.StatefulDataLoader",),
        ),
        Suite(
            "swift",
            "swift-loader: SwiftLoader",
            "tests",
            (".",),
            "./swift_loader",
            replaced=("swift_loader.SwiftLoader",),
        ),
    )
}

REQUIREMENTS = (
    "cloudpickle", "crc32c", "datasets", "dill", "expecttest", "fsspec", "graphviz", "hypothesis", "iopath==0.1.9",
    "numpy", "pandas", "parameterized", "portalocker", "protobuf<3.20", "psutil", "pyarrow", "pytest", "rarfile",
    "requests", "structlog",
)  # fmt: skip
"""What the suites need beside torch and the originals, on both sides."""
