"""What this machine allows, as plain values: memory, cores, files, shared memory, start methods, packages.

Every function reads one thing and gives None where the system does not say. Limits of containers (cgroups, both
versions) count: a job that exceeds them is killed, however much the machine has.
"""

import os
import resource
import shutil
import socket
import threading
from importlib import metadata, util
from pathlib import Path
from typing import Any

_CGROUPS = Path("/sys/fs/cgroup")
_PACKAGES = {
    "torch": "torch",
    "jax": "jax",
    "arrow": "pyarrow",
    "frames": "polars",
    "media": "simplejpeg",
    "text": "tokenizers",
    "remote": "fsspec",
    "ray": "ray",
    "ui": "rich",
}


def facts() -> dict[str, Any]:
    """All of it, ready for JSON."""
    return {
        "start": start_methods(),
        "cores": cores(),
        "memory": memory(),
        "shm": shm(),
        "files": limit(resource.RLIMIT_NOFILE),
        "extras": extras(),
        "mpirun": shutil.which("mpirun"),
    }


def start_methods() -> dict[str, Any]:
    """How worker processes can be started and watched here."""
    return {
        "fork": hasattr(os, "fork"),
        "threads now": threading.active_count(),  # fork is safe with one
        "seqpacket": hasattr(socket, "SOCK_SEQPACKET"),
        "pidfd": hasattr(os, "pidfd_open"),
        "memfd": hasattr(os, "memfd_create"),
    }


def cores(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> dict[str, Any]:
    quota = None
    for text in _cgroup_values("cpu.max", "cpu/cpu.cfs_quota_us", proc, cgroups):
        words = text.split()
        if words[0] in ("max", "-1"):
            continue
        period = int(words[1]) if len(words) > 1 else 100_000
        quota = min(quota or float("inf"), int(words[0]) / period)
    return {"machine": os.cpu_count(), "allowed": len(os.sched_getaffinity(0)), "quota": quota}


def memory(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> dict[str, int | None]:
    """In bytes. `limit` is the tightest of the container's and of `ulimit -v`."""
    lines = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    limits = [
        int(text)
        for text in _cgroup_values("memory.max", "memory/memory.limit_in_bytes", proc, cgroups)
        if text.isdigit() and int(text) < total  # version 1 writes a huge number for "no limit"
    ]
    address_space = limit(resource.RLIMIT_AS)["soft"]
    if address_space is not None:
        limits.append(address_space)
    return {
        "total": total,
        "available": available,
        "limit": min(limits, default=None),
        "locked": limit(resource.RLIMIT_MEMLOCK)["soft"],
    }


def shm(folder: Path = Path("/dev/shm")) -> dict[str, int] | None:
    if not folder.is_dir():
        return None
    size = os.statvfs(folder)
    return {"total": size.f_frsize * size.f_blocks, "free": size.f_frsize * size.f_bavail}


def limit(which: int) -> dict[str, int | None]:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return {"soft": soft, "hard": hard}


def extras() -> dict[str, str | None]:
    """Extra -> version of its package, None when it is not installed. Nothing is imported."""
    return {extra: _version(package) for extra, package in _PACKAGES.items()}


def _version(package: str) -> str | None:
    if util.find_spec(package) is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _cgroup_values(name: str, old_name: str, proc: Path, cgroups: Path) -> list[str]:
    """The values of a limit in the cgroup of this process and in all above it: each of them applies."""
    values = []
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except FileNotFoundError:
        return []
    unified = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "/")
    place = cgroups / unified.lstrip("/")
    for folder in (place, *place.parents):
        if (folder / name).is_file():
            values.append((folder / name).read_text().strip())
        if folder == cgroups:
            break
    if (cgroups / old_name).is_file():
        values.append((cgroups / old_name).read_text().strip())
    return [value for value in values if value]
