"""Tuning: the number of workers, found while an epoch runs.

    no workers ──waits?──> one per core ──faster?──> twice as many ──faster?──> ... ──no──> back to the best

The rate that counts is that of the whole training loop. A loop that hardly waits is left as it is. To change the number
of workers an epoch is broken off where it stands and goes on from there with others: batches do not depend on the
workers that make them, so only the speed changes. What was learned holds for later epochs too.
"""

import os
import time
from dataclasses import replace
from typing import Any

from headrace.engine.policy import Policy
from headrace.errors import SnapshotRefused
from headrace.observe.meter import Meter

WAITING = 0.05
"""A loop that waits less than this share of its time is not bound by its loader."""
FASTER = 1.08
"""A change that gains less than this is noise."""
SECONDS, PATIENCE = 0.25, 3.0
"""How long a setting is measured; and after how long even two batches are enough."""
MOST = 8
"""Workers per core, at the most: more than one per core pays where they sleep, on a disk or a network."""
USUAL = 2
"""Worker processes per core that a program may ask for without a word."""


def available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def caution(policy: Policy) -> str:
    """What is said of far more worker processes than there are cores: they take memory and turns from each other."""
    cores = available()
    if policy.kind != "process" or policy.workers <= USUAL * cores:
        return ""
    return (
        f"workers={policy.workers} are {policy.workers} processes on {cores} core{'s' * (cores > 1)}: more than one a "
        "core gain only where they wait for a disk or a network; workers='auto' finds the number"
    )


class Tuner:
    """Tries settings one after the other and keeps the best."""

    def __init__(self, policy: Policy, cores: int | None = None, first: int = 0) -> None:
        self._policy = policy
        self._cores = cores or available()
        self.workers = first
        """The number of workers that is tried, or was chosen."""
        self.rates: dict[int, float] = {}
        """Batches a second, by the number of workers."""
        self.settled = False

    def policy(self) -> Policy:
        """How to run with the number that is tried now."""
        if self.workers == 0:
            return replace(self._policy, workers=0, kind="inline", start_method=None)
        return replace(self._policy, workers=self.workers)

    def learn(self, rate: float, waiting: float) -> bool:
        """Take note of the rate of this setting, and choose the next one; whether that is another one."""
        before, self.rates[self.workers] = self.workers, rate
        best = max(self.rates, key=lambda workers: self.rates[workers])
        if len(self.rates) == 1 and waiting < WAITING:
            self.settled = True
            return False
        self.workers = self._next(best)
        return self.workers != before

    def _next(self, best: int) -> int:
        tried, cores = self.rates, self._cores
        if cores not in tried:
            return cores
        most = max(tried)
        if best == most and self._gained(most) and 2 * most <= MOST * cores:
            return 2 * most
        fewer = cores // 2
        # Where several gain much over none, a single one would be a slow trial for little.
        hopeless = fewer == 1 and tried[cores] > 1.25 * tried.get(0, 0.0) > 0.0
        if best == cores and fewer and fewer not in tried and not hopeless:
            return fewer
        self.settled = True
        # Between equals the smaller number: it leaves more of the machine to the training step.
        return min(workers for workers, rate in tried.items() if rate * FASTER >= tried[best])

    def _gained(self, most: int) -> bool:
        others = [rate for workers, rate in self.rates.items() if workers != most]
        return self.rates[most] > FASTER * max(others, default=0.0)


class Trial:
    """Called after each batch of an epoch: measures, and moves the epoch to the next setting."""

    def __init__(self, tuner: Tuner, meter: Meter) -> None:
        self._tuner = tuner
        self._meter = meter
        self._begin()

    def _begin(self) -> None:
        # The first batches come late, or all at once.
        self._left_out = 2 + 2 * self._tuner.workers
        self._batches = 0
        self._since: Any = None

    def __call__(self, epoch: Any) -> None:
        if self._tuner.settled:
            return
        now = time.perf_counter()
        if self._left_out:
            self._left_out -= 1
            self._since = (now, self._meter.waited)
            return
        self._batches += 1
        began, waited = self._since
        took = now - began
        enough = took >= SECONDS and self._batches >= 8 + 4 * self._tuner.workers
        if not enough and not (took >= PATIENCE and self._batches >= 2):
            return
        before = self._tuner.workers
        if self._tuner.learn(self._batches / took, (self._meter.waited - waited) / took):
            try:
                epoch.move(self._tuner.policy())
            except SnapshotRefused:  # an op that cannot say where it stands must be left where it is
                self._tuner.workers, self._tuner.settled = before, True
        self._begin()
