"""Google Drive: from a download link to the URL of the file itself.

A request for a small file is answered with the file, one for a large file with a page that asks whether to go on
without a virus scan. A cookie (the older way) or the hidden fields of the page's form confirm that, and a second
request with them gets the file.
"""

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

from headrace.sources.extra import import_extra
from headrace.sources.http import get

PAGE = 1 << 20
"""The most bytes that are read of a page that asks for confirmation."""


def resolve(url: str, timeout: float | None, options: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The name of the file, its URL, and arguments of `requests.get` that the URL needs."""
    with import_extra("remote", "requests").Session() as session:
        for _ in range(2):
            with get(url, timeout, {}, options, session) as response:
                response.raise_for_status()
                disposition = response.headers.get("Content-Disposition")
                if disposition is not None:
                    return _file_name(disposition, url), url, {"cookies": session.cookies.get_dict()}
                page = response.raw.read(PAGE, decode_content=True).decode("utf-8", "replace")
            if "Quota exceeded" in page:
                raise RuntimeError(f"Google drive link {url} is currently unavailable, because the quota was exceeded.")
            onward = _confirmed(url, page, session.cookies.get_dict())
            if onward is None:
                break
            url = onward
    raise RuntimeError(
        f"Google drive link {url} internal error: headers don't contain content-disposition. This is usually caused by "
        f"using a sharing/viewing link instead of a download link."
    )


def _confirmed(url: str, page: str, cookies: dict[str, str]) -> str | None:
    """The URL that confirms; None if the page does not ask for confirmation."""
    for name, value in cookies.items():
        if name.startswith("download_warning"):
            return f"{url}{'&' if '?' in url else '?'}{urlencode({'confirm': value})}"
    form = re.search(r'<form[^>]*\baction="([^"]+)"', page)
    if form is None:
        return None
    hidden = re.findall(r'<input[^>]*\bname="([^"]+)"[^>]*\bvalue="([^"]*)"', page)
    return f"{unescape(form.group(1))}?{urlencode({unescape(k): unescape(v) for k, v in hidden})}"


def _file_name(disposition: str, url: str) -> str:
    found = re.search(r'filename="([^"]+)"', disposition)
    if found is None:
        raise RuntimeError(f"Google drive link {url} does not tell a file name: {disposition!r}")
    return found.group(1)
