"""torchdata.nodes with threads."""

from benchmarks.subjects.nodes_loader import Nodes

SUBJECT = Nodes("thread")
