"""`headrace.DataLoader` of release 0.2."""

# isort: off
import benchmarks.release02  # noqa: F401

# isort: on
from benchmarks.subjects.torch_door_loader import TorchDoor

SUBJECT = TorchDoor()
