"""Names of machines: `h[0-2,4]`, host files, and the network that joins them."""

import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import BadOption

_SIOCGIFADDR = 0x8915


def expand(text: str) -> tuple[str, ...]:
    """`h[0-2,4],g` is h0, h1, h2, h4, g; `n[08-10]` keeps its zeros; brackets may come several times in a name."""
    hosts: list[str] = []
    # a comma inside brackets does not end a name
    for part in re.split(r",(?![^\[]*\])", text):
        hosts += _expand_one(part.strip(), text)
    twice = {host for host in hosts if hosts.count(host) > 1}
    if twice:
        raise BadOption(f"--host {text}: {', '.join(sorted(twice))} is named more than once; name each host once")
    return tuple(hosts)


def _expand_one(part: str, text: str) -> list[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](.*)", part)
    if not match:
        if not re.fullmatch(r"[\w.:-]+", part):
            raise BadOption(f"--host {text}: {part!r} is not the name of a host; write h0,h1 or h[0-2,4]")
        return [part]
    before, ranges, after = match.groups()
    middles: list[str] = []
    for piece in ranges.split(","):
        bounds = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", piece)
        if not bounds or int(bounds[2] or bounds[1]) < int(bounds[1]):
            raise BadOption(f"--host {text}: [{ranges}] is not a list of numbers; write [0-2,4]")
        first, last = bounds[1], bounds[2] or bounds[1]
        middles += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return [name for middle in middles for name in _expand_one(before + middle + after, text)]


def read_file(path: Path) -> tuple[str, ...]:
    """One host (or `h[0-2]`) a line; `#` begins a comment."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise BadOption(f"--hostfile {path}: {error.strerror}") from None
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    for name in names:
        if " " in name:
            raise BadOption(
                f"--hostfile {path}: {name!r}: write one name a line; ranks are spread evenly over the hosts"
            )
    if not names:
        raise BadOption(f"--hostfile {path} names no host")
    return expand(",".join(names))


def are_here(hosts: Sequence[str]) -> bool:
    """Whether the list is this machine alone."""
    name = socket.gethostname()
    return len(hosts) == 1 and hosts[0] in {"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]}


def network(text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise BadOption(f"--host-subnet {text}: {error}; write an IPv4 network such as 10.1.0.0/16") from None


def interface(subnet: ipaddress.IPv4Network) -> tuple[str, str]:
    """The interface of this machine that is in the subnet, and its address."""
    seen: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asker, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an IPv4 address
                continue
            address = socket.inet_ntoa(answer[20:24])
            if ipaddress.IPv4Address(address) in subnet:
                return name, address
            seen.append(f"{name} {address}")
    raise BadOption(f"--host-subnet {subnet}: no interface of this machine is in it; there are: {', '.join(seen)}")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taker:
        taker.bind(("", 0))
        port: int = taker.getsockname()[1]
        return port
