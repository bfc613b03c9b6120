"""`headrace doctor s3://bucket/key`: whether an object can be read from here, by which client and with whose rights,
how long its first byte takes and how many bytes a second come. Of secrets it is printed which are set, never a value.
"""

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from headrace.errors import BadOption
from headrace.secrets import cleaned, shown
from headrace.sources.bytes import ByteFile, open_bytes
from headrace.sources.listing import matching_files
from headrace.sources.pool import at_once
from headrace.sources.remote import BLOCK
from headrace.sources.stores import knows

PREFIXES = ("AWS_", "GOOGLE_", "AZURE_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
TIMES = 5
TOGETHER = 16
_MB = 1_000_000


def examine(url: str) -> dict[str, Any]:
    """What is found out about an object, or about the first one below a name that ends with `/`; ready for JSON."""
    report: dict[str, Any] = {
        "url": shown(url),
        "client": _client(url),
        "variables": sorted(name for name in os.environ if name.startswith(PREFIXES)),
    }
    try:
        name = matching_files(url)[0]
        with open_bytes(name) as file:
            report |= {"object": shown(name), "size": file.size, "tag": bool(file.state.tag), **_measured(file)}
    except (OSError, BadOption, ValueError) as error:
        report["error"] = cleaned(f"{type(error).__name__}: {error}")
    return report


def _client(url: str) -> str:
    if url.startswith(("http://", "https://")):
        return "requests"
    return "obstore" if knows(url) else "fsspec"


def _measured(file: ByteFile) -> dict[str, float | None]:
    """Milliseconds to the first byte; MB a second of one request, and of many at once where the file is so large."""
    if not file.size:
        return {"first_byte": None, "one": None, "many": None}
    latency = median(_seconds(lambda: file.pread(0, 1)) for _ in range(TIMES))
    size = min(BLOCK, file.size)
    alone = _seconds(lambda: file.pread(0, size))
    starts = range(0, file.size - size + 1, size)[:TOGETHER]
    together = _seconds(lambda: at_once(lambda start: len(file.pread(start, size)), starts))
    return {
        "first_byte": 1000 * latency,
        "one": size / alone / _MB,
        "many": len(starts) * size / together / _MB if len(starts) > 1 else None,
    }


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def text(report: dict[str, Any]) -> list[str]:
    lines = [
        f"object     {report.get('object', report['url'])}",
        f"client     {report['client']}",
        f"variables  {', '.join(report['variables']) or 'none is set'}",
    ]
    if "error" in report:
        return [*lines, f"error      {report['error']}"]
    lines.append(f"size       {report['size']:,} bytes, {'with' if report['tag'] else 'without'} an entity tag")
    if report["first_byte"] is not None:
        many = f", {report['many']:.0f} MB/s over {TOGETHER}" if report["many"] else ""
        lines.append(f"first byte {report['first_byte']:.0f} ms; {report['one']:.0f} MB/s over one connection{many}")
    if not report["tag"]:
        lines.append("  - the store tells no version of it: a change is noticed by its size only")
    return lines
