"""Logs of a SwiftLoader: JSON lines, in files of its own.

    {"event": "batch", "epoch": 0, "batch": 3, "indices": [7, 5], "logger": "Worker-1", "level": "debug", ...}

    <prefix>_Dataloader-<consumer>.json        start, epochs, close; each delivered batch
    <prefix>_WorkerManager-<consumer>.json     the workers: what each answered at the start
    <prefix>_Worker-<number>-parent.json       what arrived from that worker, and its figures
    <prefix>_Worker-<number>-child.json        written by the worker: its dataset, and the samples of each batch

Worker numbers count over all consumers. Files grow to 10 MiB and keep two older ones. The loggers are not registered
anywhere, so that nobody else's configuration touches them and two loaders never write into each other's files: a prefix
that a living loader of this process already uses becomes `<prefix>-2`, and so on.
"""

import contextlib
import json
import logging
import logging.handlers
import os
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, meant

FILE_BYTES = 10 * 1024 * 1024
BACKUPS = 2
LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}
ENDINGS = (".json", ".log")
_used: set[str] = set()


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Where log lines go, and from which level on."""

    path: str | None = None
    """The prefix, without the ending of the files."""
    stdout: bool = False
    level: int = logging.DEBUG
    ending: str = ENDINGS[0]

    @classmethod
    def of(cls, logger: object) -> "LogTarget | None":
        """The argument `logger`: None, a file prefix, or a dict of path, stdout and level."""
        if logger is None or isinstance(logger, cls):
            return logger
        if isinstance(logger, str | Path):
            logger = {"path": logger}
        if not isinstance(logger, Mapping):
            raise BadOption(f"logger must be a file prefix or a dict, not {type(logger).__name__}")
        for name in logger:
            if name not in _KEYS:
                raise BadOption(f"logger has no key {name!r}{meant(str(name), _KEYS, _HAS)}")
        level = logger.get("level", "DEBUG")
        if str(level).upper() not in LEVELS:
            raise BadOption(f"logger level must be one of {', '.join(LEVELS)}, not {level!r}")
        path = logger.get("path")
        if path is not None and not isinstance(path, str | Path):
            raise BadOption(f"logger path must be a file prefix, not {path!r}")
        # A prefix that ends in .json or .log says which ending the files get.
        ending = next((ending for ending in ENDINGS if str(path).endswith(ending)), "")
        prefix = None if path is None else str(path).removesuffix(ending)
        return cls(prefix, bool(logger.get("stdout", False)), LEVELS[str(level).upper()], ending or ENDINGS[0])

    def file(self, name: str) -> Path | None:
        """The file that the logger of this name writes to."""
        return None if self.path is None else Path(f"{self.path}_{name}{self.ending}")

    @contextlib.contextmanager
    def claimed(self) -> "Iterator[LogTarget]":
        """The same with a prefix that no other loader of this process writes to."""
        if self.path is None:
            yield self
            return
        numbered = (f"{self.path}-{number}" if number > 1 else self.path for number in count(1))
        free = next(path for path in numbered if os.path.abspath(path) not in _used)
        name = os.path.abspath(free)  # the working directory may change meanwhile
        _used.add(name)
        try:
            yield replace(self, path=free)
        finally:
            _used.discard(name)


_KEYS = ("path", "stdout", "level")
_HAS = "it has path, stdout and level"


class Log(logging.LoggerAdapter[logging.Logger]):
    """Writes events with their fields, `log.info("epoch", epoch=3)`; without a target a call costs one comparison."""

    def __init__(self, to: LogTarget | None, name: str, file: str | None = None) -> None:
        super().__init__(logging.Logger(name, sys.maxsize if to is None else to.level))
        self.detailed = self.isEnabledFor(logging.DEBUG)
        """Whether debug lines are wanted: to be checked before costly fields are computed."""
        path = None if to is None else to.file(file or name)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._add(logging.handlers.RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=BACKUPS))
        if to is not None and to.stdout:
            self._add(logging.StreamHandler(sys.stdout))

    def _add(self, handler: logging.Handler) -> None:
        handler.setFormatter(_Line())
        self.logger.addHandler(handler)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {"extra": {"fields": kwargs}}

    def close(self) -> None:
        for handler in list(self.logger.handlers):
            self.logger.removeHandler(handler)
            handler.close()


class _Line(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "event": record.msg,
            **getattr(record, "fields", {}),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": timestamp(record.created),
        }
        return json.dumps(line, default=str)


def timestamp(seconds: float) -> str:
    """A time as text, in UTC."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1e6):06d}Z"
