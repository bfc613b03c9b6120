"""A web server on loopback that fails on purpose.

Every request is answered by the next of its `faults`, and by good behaviour when they are used up:

    503              that status
    ("cut", n)       n bytes of the body that was promised, then the connection ends
    ("chunked", n)   the same, without telling the length first
    ("changed",)     a file with another entity tag
    ("drop",)        the connection ends before any answer
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Faulty:
    """The files it serves, how it fails, and what it was asked."""

    def __init__(self, files: dict[str, bytes], faults: list[Any] | None = None, ranges: bool = True) -> None:
        self.files = files
        self.faults = list(faults or [])
        self.ranges = ranges
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range of each request."""
        self.url = ""
        self.lock = threading.Lock()


@contextmanager
def serving(files: dict[str, bytes], faults: list[Any] | None = None, ranges: bool = True) -> Iterator[Faulty]:
    state = Faulty(files, faults, ranges)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            with state.lock:
                state.asked.append((self.path, self.headers.get("Range")))
                fault = state.faults.pop(0) if state.faults else None
            self.close_connection = True
            name = self.path.lstrip("/").partition("?")[0]
            if fault == ("drop",):
                return
            if isinstance(fault, int):
                self.send_error(fault)
                return
            if name not in state.files:
                self.send_error(404)
                return
            self.answer(state.files[name], fault)

        def answer(self, data: bytes, fault: Any) -> None:
            start = 0
            asked = self.headers.get("Range")
            if asked and state.ranges:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start = int(first)
                if start >= len(data):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(data)}")
                    self.end_headers()
                    return
                end = min(int(last) + 1, len(data)) if last else len(data)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            else:
                end = len(data)
                self.send_response(200)
            body = data[start:end]
            self.send_header("ETag", '"two"' if fault == ("changed",) else '"one"')
            chunked = isinstance(fault, tuple) and fault[0] == "chunked"
            if not chunked:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            kept = body[: fault[1]] if isinstance(fault, tuple) and len(fault) > 1 else body
            self.wfile.write(kept)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # the client went away: that is what the tests are about

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
