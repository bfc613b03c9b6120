import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader
from headrace.errors import MissingExtra
from headrace.ops.files import read_from_http
from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op, everything
from tests.ops.test_load_from_tar import CONTENT, make_tar
from tests.ops.test_load_from_zip import make_zip
from tests.sources.faulty import serving

requests = pytest.importorskip("requests")


def test_urls_become_streams_in_any_number_of_workers() -> None:
    with serving({"a": b"1\n2\n", "b": b"3\n"}) as server:
        urls = [f"{server.url}/a", f"{server.url}/b"]
        pipe = Pipe.of(urls).read_from_http()
        assert len(pipe) == 2
        assert check_file_op(pipe) == [(urls[0], b"1\n2\n"), (urls[1], b"3\n")]
        assert list(pipe.readlines(return_path=False)) == [b"1", b"2", b"3"]


def test_a_missing_page_is_an_error_or_left_out_with_a_warning() -> None:
    with serving({"a": b"x"}) as server:
        urls = [f"{server.url}/no", f"{server.url}/a"]
        with pytest.raises(requests.HTTPError, match=f"404.*{urls[0]}"):
            list(Pipe.of(urls).read_from_http())
        forgiving = Pipe.of(urls).read_from_http(skip_on_error=True)
        with pytest.warns(UserWarning, match=r"404.*, skipping\.\.\."):
            assert everything(forgiving) == [(urls[1], b"x")]
        assert len(forgiving) == 2


def test_keywords_go_to_requests() -> None:
    with serving({"a": b"x"}) as server:
        pipe = Pipe.of([f"{server.url}/a"]).read_from_http(timeout=5, params={"q": "1"})
        assert everything(pipe)[0][1] == b"x"
        assert server.asked[0][0] == "/a?q=1"


def test_archives_are_read_from_the_web(tmp_path: Path) -> None:
    files = {
        "x.tar": Path(make_tar(tmp_path / "x.tar")).read_bytes(),
        "x.zip": Path(make_zip(tmp_path / "x.zip")).read_bytes(),
    }
    with serving(files, [("cut", 3000)]) as server:
        tar = Pipe.tar([f"{server.url}/x.tar"])
        assert everything(tar) == [(f"{server.url}/x.tar/{name}", data) for name, data in CONTENT.items()]
        assert len(server.asked) == 2, "an archive is read in one pass: one request, and one after the fault"
        zipped = Pipe.of([f"{server.url}/x.zip"]).read_from_http().load_from_zip()
        assert [data for _, data in everything(zipped)] == list(CONTENT.values())
    assert tarfile.is_tarfile(tmp_path / "x.tar")


GDOWN = """
import os
def download(url, output, quiet=False, timeout=None, **more):
    if "quota" in url:
        raise RuntimeError("too many users have viewed or downloaded this file recently")
    assert os.path.isdir(output) and quiet and timeout == more.pop("expected", 60.0) and not more
    path = os.path.join(output, url.rpartition("/")[2] + ".csv")
    with open(path, "wb") as file:
        file.write(b"content of " + url.encode())
    return path
"""


@pytest.fixture
def gdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that downloads nothing, and the folder in which files are kept for a while."""
    (tmp_path / "gdown.py").write_text(GDOWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gdown", raising=False)
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_files_of_google_drive_are_those_that_gdown_brings_and_none_of_them_is_kept(gdown: Path) -> None:
    links = ["https://drive.google.com/a", "https://drive.google.com/b"]
    pipe = Pipe.of(links).read_from_gdrive()
    expected = [(f"{link[-1]}.csv", f"content of {link}".encode()) for link in links]
    assert everything(pipe) == expected
    with Loader(pipe, workers=2, start_method="fork") as loader:
        assert [(name, stream.read()) for name, stream in loader] == expected
    assert everything(Pipe.of(links).read_from_gdrive(timeout=5, expected=5)) == expected
    assert everything(Pipe.of(links).read_from_remote()) == expected
    assert not list(gdown.iterdir())


def test_google_drive_may_refuse(gdown: Path) -> None:
    quota = Pipe.of(["https://drive.google.com/quota"])
    with pytest.raises(RuntimeError, match="too many users"):
        list(quota.read_from_gdrive())
    with pytest.warns(UserWarning, match=r"recently, skipping"):
        assert list(quota.read_from_gdrive(skip_on_error=True)) == []


@pytest.mark.parametrize("verb", ["read_from_gdrive", "read_from_remote"])
def test_without_gdown_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setitem(sys.modules, "gdown", None)
    pipe = getattr(Pipe.of(["https://drive.google.com/a"]), verb)()
    with pytest.raises(MissingExtra, match=r"^gdown is not installed; .*pip install 'headrace\[gdrive\]'$"):
        list(pipe)


def test_a_remote_reader_chooses_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []

    def note(kind: str) -> Any:
        return lambda self, url: calls.append((kind, url))

    monkeypatch.setattr(read_from_http.ReadFromGdrive, "apply", note("gdrive"))
    monkeypatch.setattr(read_from_http.ReadFromHttp, "apply", note("http"))
    urls = ["https://drive.google.com/uc?id=1", "https://docs.google.com/x", "https://example.com/drive.google.com"]
    list(Pipe.of(urls).read_from_remote())
    assert [kind for kind, _ in calls] == ["gdrive", "gdrive", "http"]
