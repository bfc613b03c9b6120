"""A web server on loopback that behaves as an object store does over a network, and that fails on purpose.

    latency          seconds before the first byte of every answer
    rate             bytes a second of every connection

Every request is answered by the next of its `faults`, and by good behaviour when they are used up. `fail` is asked for
the fault of a request (its number, its path) where there is no list:

    503              that status
    ("cut", n)       n bytes of the body that was promised, then the connection ends
    ("reset", n)     n bytes, then the connection is reset
    ("chunked", n)   n bytes, without telling the length first
    ("changed",)     a file with another entity tag
    ("longer",)      a file of another size
    ("drop",)        the connection ends before any answer
    ("stall", n)     n bytes, then nothing until the server ends
    ("trickle", n)   n bytes a second
    ("whole",)       200 with the whole file, whatever range was asked for
    ("shifted",)     another range than the one that was asked for

It keeps connections open, and answers what object stores are asked: GET and HEAD of `/bucket/key` with ranges, and the
list of a bucket (`?list-type=2`).
"""

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PIECE = 1 << 18
MODIFIED = "Mon, 16 Nov 2026 10:00:00 GMT"
Fault = Any
Fail = Callable[[int, str], Fault]


class Faulty:
    """The files it serves, how it fails, and what it was asked."""

    def __init__(self, files: dict[str, bytes], faults: list[Fault] | None = None, ranges: bool = True) -> None:
        self.files = files
        self.faults = list(faults or [])
        self.ranges = ranges
        self.fail: Fail | None = None
        self.latency = 0.0
        self.rate = 0.0
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range of each request."""
        self.sent = 0
        """Bytes of bodies."""
        self.connections = 0
        self.url = ""
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def reset(self) -> None:
        """Forget what was asked."""
        with self.lock:
            self.asked, self.sent, self.connections = [], 0, 0

    def next_fault(self, path: str) -> Fault:
        if self.faults:
            return self.faults.pop(0)
        return None if self.fail is None else self.fail(len(self.asked), path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Faulty

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.state.lock:
            self.state.connections += 1

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        state = self.state
        with state.lock:
            state.asked.append((self.path, self.headers.get("Range")))
            fault = state.next_fault(self.path)
        if state.latency:
            state.ended.wait(state.latency)
        split = urlsplit(self.path)
        name = unquote(split.path.lstrip("/"))
        if fault == ("drop",):
            self.close_connection = True
        elif isinstance(fault, int):
            self.refuse(fault, "SlowDown")
        elif "list-type" in split.query:
            self.list(name.strip("/"), parse_qs(split.query).get("prefix", [""])[0])
        elif name not in state.files:
            self.refuse(404, "NoSuchKey")
        else:
            self.answer(state.files[name], fault or ())

    def refuse(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def list(self, bucket: str, prefix: str) -> None:
        names = sorted(name for name in self.state.files if name.startswith(f"{bucket}/{prefix}"))
        found = "".join(
            f"<Contents><Key>{name.partition('/')[2]}</Key><LastModified>2026-11-16T10:00:00.000Z</LastModified>"
            f'<ETag>"one"</ETag><Size>{len(self.state.files[name])}</Size></Contents>'
            for name in names
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, data: bytes, fault: tuple[Any, ...]) -> None:
        kind = fault[0] if fault else ""
        start, end = 0, len(data)
        asked = self.headers.get("Range")
        if asked and self.state.ranges and kind != "whole":
            first, _, last = asked.removeprefix("bytes=").partition("-")
            if not first:
                start = max(0, end - int(last))
            else:
                start = int(first)
                end = min(int(last) + 1, end) if last else end
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if kind == "shifted":
                start, end = max(0, start - 1), max(1, end - 1)
            self.send_response(206)
            total = len(data) + (kind == "longer")
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{total}")
        else:
            self.send_response(200)
        self.send_header("ETag", '"changed"' if kind == "changed" else f'"{zlib.crc32(data)}"')
        self.send_header("Last-Modified", MODIFIED)
        if kind == "chunked":
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command != "HEAD":
            self.send(memoryview(data)[start:end], fault)

    def send(self, body: memoryview, fault: tuple[Any, ...]) -> None:
        kind, amount = (fault[0], fault[1]) if len(fault) > 1 else ("", len(body))
        rate = amount if kind == "trickle" else self.state.rate
        step = max(1, int(rate / 10)) if kind == "trickle" else PIECE
        kept = body if kind in ("", "trickle") else body[:amount]
        begun = time.monotonic()
        for at in range(0, len(kept), step):
            piece = kept[at : at + step]
            self.wfile.write(piece)
            with self.state.lock:
                self.state.sent += len(piece)
            if rate:
                ahead = (at + len(piece)) / rate - (time.monotonic() - begun)
                if ahead > 0 and self.state.ended.wait(ahead):
                    return
        if kind == "stall":
            self.state.ended.wait()
        if kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if kind in ("cut", "reset", "stall"):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client went away: that is what the tests are about


@contextmanager
def serving(
    files: dict[str, bytes],
    faults: list[Fault] | None = None,
    ranges: bool = True,
    latency: float = 0.0,
    rate: float = 0.0,
) -> Iterator[Faulty]:
    state = Faulty(files, faults, ranges)
    state.latency, state.rate = latency, rate
    server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"state": state}))
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
