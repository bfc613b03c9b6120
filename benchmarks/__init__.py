"""Benchmarks: how fast Headrace is, beside the loaders that people use today.

`python -m benchmarks` runs everything; `cases/` holds one question a file, `subjects/` one adapter a loader.
"""
