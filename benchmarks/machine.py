"""What the figures were measured on: hardware and versions, without which they say nothing."""

import importlib.metadata
import os
import platform
import resource
import subprocess
import time
from pathlib import Path

PACKAGES = ("headrace", "numpy", "torch", "pillow", "pyarrow", "pandas", "polars", "ray", "datasets")


def hardware() -> dict[str, str | int | float]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


class Others:
    """How many cores other processes kept busy since this was made; what our children used is known once they ended."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.before = busy() - own()

    def cores(self) -> float:
        return max(0.0, busy() - own() - self.before) / (time.perf_counter() - self.began)


def busy() -> float:
    """Seconds in which any core worked, or was taken away by the host; 0 where the system does not say."""
    try:
        line = Path("/proc/stat").read_text().partition("\n")[0]
    except FileNotFoundError:
        return 0.0
    user, nice, system, _idle, _wait, irq, soft, steal, *_ = (int(word) for word in line.split()[1:])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def private_memory() -> int:
    """Bytes that this process and its children have for themselves or share among each other, files left out."""
    import psutil

    total = 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended meanwhile
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon", "Pss_Shmem")))
    return total * 1024


def shared_memory() -> int:
    """Bytes of shared memory that this process and its children have open or mapped, each file once."""
    import psutil

    found: dict[tuple[int, int], int] = {}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for kind in ("fd", "map_files"):
            try:
                names = os.listdir(f"/proc/{process.pid}/{kind}")
            except OSError:
                continue  # it has ended meanwhile
            for name in names:
                path = f"/proc/{process.pid}/{kind}/{name}"
                try:
                    if os.readlink(path).startswith(("/memfd:", "/dev/shm/", "/dev/zero")):
                        file = os.stat(path)
                        found[file.st_dev, file.st_ino] = 512 * file.st_blocks
                except OSError:
                    continue  # closed meanwhile
    return sum(found.values())


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def versions(root: Path) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if commit.returncode == 0:
        found["commit"] = commit.stdout.strip()
    return found
