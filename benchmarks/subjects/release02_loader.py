"""Release 0.2 of Headrace: whether anything has become slower."""

# isort: off
import benchmarks.release02  # noqa: F401

# isort: on
from benchmarks.subjects.headrace_loader import HeadraceLoader

SUBJECT = HeadraceLoader()
