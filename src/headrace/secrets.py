"""Secrets: URLs as messages may show them. What stands before the host (`user:password@`) and after the path (the
signature of a presigned URL) lets whoever reads it in."""

import re

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
HIDDEN = "..."


def shown(path: str) -> str:
    """A path or URL without what is secret in it."""
    protocol, marker, rest = path.partition("://")
    if not marker:
        return path
    place, question, _ = rest.partition("?")
    host, slash, inner = place.partition("/")
    user, at, name = host.rpartition("@")
    # (In Azure's `abfss://container@account/...` what stands before the host is no secret.)
    secret = at and (":" in user or protocol.startswith("http"))
    return f"{protocol}://{f'{HIDDEN}@{name}' if secret else host}{slash}{inner}{f'?{HIDDEN}' if question else ''}"


def cleaned(text: str) -> str:
    """A text in which every URL is without its secrets."""
    return URL.sub(lambda found: shown(found[0]), text)
