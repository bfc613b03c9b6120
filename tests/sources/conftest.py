"""Stores on loopback for tests of what reads from stores: the faulty one, and a real S3 server."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.sources import stores
from tests.sources.faulty import Faulty, serving

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests", "AWS_REGION": "us-east-1"}


def use_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Send what is asked of s3:// to this server."""
    for name, value in {**KEYS, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)
    stores.store_of.cache_clear()


@contextmanager
def moto() -> Iterator[str]:
    """A real S3 server on loopback."""
    server = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running: Any = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        running.stop()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a real S3 server with an empty bucket `bkt`; s3:// means that server."""
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    with moto() as url:
        use_endpoint(monkeypatch, url)
        client = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket="bkt")
        yield client
        client.close()
    stores.store_of.cache_clear()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """The faulty server as s3://; what is in its `files` under `bkt/` is the bucket `bkt`."""
    pytest.importorskip("obstore")
    with serving({}) as server:
        use_endpoint(monkeypatch, server.url)
        yield server
    stores.store_of.cache_clear()
