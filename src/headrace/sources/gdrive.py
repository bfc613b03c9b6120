"""Google Drive, by the package `gdown` (extra `gdrive`)."""

import os
import tempfile
from typing import Any, BinaryIO

from headrace.sources.bytes import local_stream
from headrace.sources.extra import import_extra
from headrace.sources.http import TIMEOUT


def download(url: str, timeout: float | None, options: dict[str, Any]) -> tuple[str, BinaryIO]:
    """The name of the file behind a link, and the file: a copy on the local disk, which is gone when it is closed.

    `options` go to `gdown.download`.
    """
    gdown = import_extra("gdrive", "gdown")
    given = {"quiet": True, "timeout": TIMEOUT if timeout is None else timeout, **options}
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        path = gdown.download(url, folder + os.sep, **given)
        return os.path.basename(path), local_stream(path)
