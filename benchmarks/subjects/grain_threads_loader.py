"""Grain with threads, which is its default."""

from benchmarks.subjects.grain_loader import Grain

SUBJECT = Grain(processes=False)
