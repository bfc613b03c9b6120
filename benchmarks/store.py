"""A store on loopback, in a process of its own: objects over HTTP, with a delay before every answer and a rate on every
connection. It answers GET with ranges, and says how much it has sent."""

import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

PIECE = 1 << 18


class StoreHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    latency: float
    rate: float
    lock = threading.Lock()
    told = {"sent": 0, "requests": 0}  # noqa: RUF012 - one for all connections

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/-"):
            if self.path == "/-reset":
                self.told.update(sent=0, requests=0)
            self._send(200, json.dumps(self.told).encode(), {})
            return
        time.sleep(self.latency)
        content = self.objects.get(self.path[1:])
        if content is None:
            self._send(404, b"", {})
            return
        first, last = 0, len(content) - 1
        if asked := self.headers.get("Range"):
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end), last) if end else last
        more = {"ETag": f'"{len(content)}"', "Last-Modified": "Mon, 16 Nov 2026 10:00:00 GMT"}
        if asked:
            more["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        with self.lock:
            self.told["sent"] += last + 1 - first
            self.told["requests"] += 1
        self._send(206 if asked else 200, memoryview(content)[first : last + 1], more)

    def _send(self, status: int, body: bytes | memoryview, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        begun = time.monotonic()
        for at in range(0, len(body), PIECE):
            self.wfile.write(body[at : at + PIECE])
            early = (at + PIECE) / self.rate - (time.monotonic() - begun)
            if early > 0 and len(body) > PIECE:
                time.sleep(early)


class StoreServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # (who has what it wanted goes away)


def _serve(objects: dict[str, bytes], latency: float, rate: float, ready: Connection) -> None:
    kind = type("Handler", (StoreHandler,), {"objects": objects, "latency": latency, "rate": rate})
    server = StoreServer(("127.0.0.1", 0), kind)
    ready.send(server.server_port)
    server.serve_forever()


@contextmanager
def served(objects: dict[str, bytes], latency: float, rate: float) -> Iterator[str]:
    """The URL of a server with these objects."""
    mine, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(objects, latency, rate, its), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{mine.recv()}"
    finally:
        process.terminate()
        process.join()
