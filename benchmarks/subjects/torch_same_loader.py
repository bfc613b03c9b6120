"""torch's DataLoader, where photographs are decoded by the library that Headrace uses, and resized by torch."""

from benchmarks.subjects.torch_loader import TorchLoader


class TorchSame(TorchLoader):
    photo = None


SUBJECT = TorchSame()
