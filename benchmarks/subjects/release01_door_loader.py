"""`headrace.DataLoader` of release 0.1."""

# isort: off
import benchmarks.release01  # noqa: F401

# isort: on
from benchmarks.subjects.torch_door_loader import TorchDoor

SUBJECT = TorchDoor()
