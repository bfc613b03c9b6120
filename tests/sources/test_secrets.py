"""No secret of a URL and no key of a store stands in a message, a log, a profile, a plan or the title of a process."""

import json
import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import doctor
from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.secrets import cleaned, shown
from headrace.sources import retry
from headrace.sources.cache import DiskCache
from headrace.sources.open import open_path
from tests.conftest import RunScript
from tests.sources.conftest import KEYS
from tests.sources.faulty import Faulty, serving

SIGNATURE, PASSWORD = "s1gnature-of-nobody", "passw0rd-of-nobody"
SECRETS = (SIGNATURE, PASSWORD, KEYS["AWS_SECRET_ACCESS_KEY"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ATTEMPTS": 2, "FIRST_PAUSE": 0.001, "LONGEST_PAUSE": 0.002}.items():
        monkeypatch.setattr(retry, name, value)


def presigned(server: Faulty, name: str) -> str:
    place = server.url.removeprefix("http://")
    return f"http://user:{PASSWORD}@{place}/{name}?X-Amz-Signature={SIGNATURE}"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("s3://b/k", "s3://b/k"),
        ("/a/b?c", "/a/b?c"),
        ("https://u:p@h/x?sig=1", "https://...@h/x?..."),
        ("https://token@h/x", "https://...@h/x"),
        ("abfss://container@account/x", "abfss://container@account/x"),
        ("az://c/x?sv=1&sig=2", "az://c/x?..."),
    ],
)
def test_a_url_is_shown_without_what_lets_one_in(path: str, want: str) -> None:
    assert shown(path) == want
    assert cleaned(f"at {path} it ended") == f"at {want} it ended" or "://" not in path


def stream(url: str) -> Any:
    with open_path(url) as file:
        return file.read()


WAYS: dict[str, Callable[[str, Path], Any]] = {
    "stream": lambda url, at: stream(url),
    "cache": lambda url, at: list(Pipe.files(url).open_files("rb", cache=DiskCache(str(at), 10**6)).read_from_stream()),
    "files": lambda url, at: list(Pipe.files(url).open_files("rb").read_from_stream()),
    "workers": lambda url, at: list(Loader(Pipe.files(url).open_files("rb").read_from_stream(), workers=1)),
    "lines": lambda url, at: list(Pipe.jsonl(url)),
    "stored": lambda url, at: list(Pipe.stored(url, "jsonl", index=at)),
    "parquet": lambda url, at: list(Pipe.parquet(url)),
    "shards": lambda url, at: list(Pipe.shards(url)),
}
FAULTS = {"refused": 403, "failing": 503, "gone": 404, "dropped": ("drop",), "changed": ("changed",), "nothing": None}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("way", WAYS)
def test_no_error_and_no_log_holds_a_secret(
    way: str, fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headrace")
    with serving({"x.jsonl": b"no document" * 300_000}) as server:
        server.fail = lambda number, path: FAULTS[fault] if number > (fault == "changed") else None
        url = presigned(server, "x.jsonl")
        try:
            WAYS[way](url, tmp_path)
        except Exception as error:
            said = "".join(traceback.format_exception(error))
            # (Lines of a program's own source are its own: here, of this test.)
            assert not [secret for secret in SECRETS if secret in said], said
    assert not [secret for secret in SECRETS if secret in caplog.text]
    assert not [name for name in os.listdir(tmp_path) if SIGNATURE in name or PASSWORD in name]


def test_no_plan_no_description_and_no_profile_holds_a_secret() -> None:
    with serving({"x": b"1\n2\n"}) as server:
        pipe = Pipe.files([presigned(server, "x")]).open_files("rb").readlines(return_path=False)
        with Loader(pipe) as loader:
            rows = list(loader)
            said = f"{pipe!r} {pipe.explain()} {loader!r} {loader.stats()!r} {loader.stats()} {loader.explain()}"
    assert len(rows) == 2
    assert not [secret for secret in SECRETS if secret in said], said


def test_the_doctor_prints_no_secret(bucket: Faulty, capsys: pytest.CaptureFixture[str]) -> None:
    bucket.files = {"bkt/x": b"x" * 9_000_000}
    assert doctor.main(["s3://bkt/x", "--json"]) == 0
    found = capsys.readouterr().out
    assert json.loads(found)["size"] == 9_000_000
    assert "AWS_SECRET_ACCESS_KEY" in found
    bucket.fail = lambda number, path: 403
    assert doctor.main(["s3://bkt/x"]) == 1
    refused = capsys.readouterr().out
    assert "the store refuses access" in refused
    assert doctor.main([presigned(bucket, "bkt/x")]) == 1
    assert not [secret for secret in SECRETS if secret in found + refused + capsys.readouterr().out]


def test_the_title_of_a_worker_holds_no_secret(bucket: Faulty, run_script: RunScript) -> None:
    bucket.files = {"bkt/x": b"1\n" * 100}
    done = run_script(
        """
        import os, sys
        from headrace import Loader, Pipe

        def title(line):
            return open(f"/proc/{os.getpid()}/cmdline").read()

        if __name__ == "__main__":
            with Loader(Pipe.files(sys.argv[1]).open_files("rb").readlines().map(title), workers=1) as loader:
                print(set(loader))
        """,
        f"{bucket.url}/bkt/x?X-Amz-Signature={SIGNATURE}",
    )
    assert done.returncode == 0, done.stderr
    assert "python" in done.stdout
    assert SIGNATURE not in done.stdout
