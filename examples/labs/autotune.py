"""Autotune beside every fixed number of workers, on five pipes that want different ones.

    python examples/labs/autotune.py            prints batches/s of each setting, and what "auto" reached of the best

Every setting runs in a process of its own, for some seconds, and the settings take turns.
"""

import argparse
import subprocess
import sys
import time
from statistics import median
from typing import Any

from headrace import Loader, Pipe

SETTINGS = ("0", "1", "2", "4", "8", "auto")


def burn(x: int, seconds: float = 0.0004) -> int:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return x


def nap(x: int) -> int:
    time.sleep(0.002)
    return x


def add(x: int) -> int:
    return x + 1


def mixed(x: int) -> int:
    return burn(nap(x), 0.0002)


ENDLESS = 10**9
PIPES: dict[str, tuple[Any, float]] = {
    "computes": (lambda: Pipe.of(range(ENDLESS)).shuffle().map(burn).batch(16), 0.0),
    "sleeps": (lambda: Pipe.of(range(ENDLESS)).shuffle().map(nap).batch(16), 0.0),
    "does both": (lambda: Pipe.of(range(ENDLESS)).shuffle().map(mixed).batch(16), 0.0),
    "is trivial": (lambda: Pipe.of(range(ENDLESS)).map(add).batch(32), 0.0),
    "has a slow consumer": (lambda: Pipe.of(range(ENDLESS)).map(add).batch(16), 0.01),
}
"""The pipe, and the seconds that the training step takes."""


def measure(name: str, setting: str, seconds: float) -> tuple[float, int]:
    """Batches a second, and the number of workers at the end."""
    make, step = PIPES[name]
    workers: Any = setting if setting == "auto" else int(setting)
    with Loader(make(), workers=workers) as loader:
        began = time.perf_counter()
        for count, _ in enumerate(loader, 1):
            if step:
                time.sleep(step)
            took = time.perf_counter() - began
            if took > seconds:
                return count / took, loader.stats().workers
    raise AssertionError("an endless pipe has ended")


def apart(name: str, setting: str, seconds: float) -> tuple[float, int]:
    command = [sys.executable, __file__, "--one", name, setting, "--seconds", str(seconds)]
    rate, workers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(rate), int(workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one", nargs=2, help="measure one pipe with one setting")
    options = parser.parse_args()
    if options.one:
        print(*measure(*options.one, options.seconds))
        return
    for name in PIPES:
        rates: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
        for _ in range(options.rounds):
            for setting in SETTINGS:
                rate, chosen = apart(name, setting, options.seconds)
                rates[setting].append(rate)
        middle = {setting: median(many) for setting, many in rates.items()}
        best = max((s for s in SETTINGS if s != "auto"), key=lambda s: middle[s])
        settings = "  ".join(f"{setting}: {rate:.0f}" for setting, rate in middle.items())
        of_best, of_default = middle["auto"] / middle[best], middle["auto"] / middle["0"]
        print(
            f"a pipe that {name}: {settings} batches/s; auto chose {chosen} and reached {of_best:.0%} of the best "
            f"({best}), {of_default:.0%} of the default (0)",
            flush=True,
        )


if __name__ == "__main__":
    main()
