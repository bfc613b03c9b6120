import tarfile
from pathlib import Path
from typing import Any

import pytest

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


DISPOSITION = {"Content-Disposition": 'attachment; filename="data.csv"'}


def test_google_drive_answers_at_once_or_asks_first() -> None:
    form = b'<form action="%s/file"><input type="hidden" name="id" value="7"><input name="confirm" value="t"></form>'
    with serving({"file": b"content", "cookie": b"?", "cookie?a=1&confirm=yes": b"confirmed"}) as server:
        server.files["form"] = form % server.url.encode()
        server.headers["file"] = server.headers["cookie?a=1&confirm=yes"] = DISPOSITION
        server.headers["cookie"] = {"Set-Cookie": "download_warning_1=yes"}
        assert everything(Pipe.of([f"{server.url}/file"]).read_from_gdrive()) == [("data.csv", b"content")]
        assert everything(Pipe.of([f"{server.url}/form"]).read_from_gdrive()) == [("data.csv", b"content")]
        assert server.asked[-1][0] == "/file?id=7&confirm=t"
        assert everything(Pipe.of([f"{server.url}/cookie?a=1"]).read_from_gdrive()) == [("data.csv", b"confirmed")]


def test_google_drive_may_refuse() -> None:
    with serving({"page": b"<html>nothing</html>", "quota": b"<html>Quota exceeded</html>"}) as server:
        with pytest.raises(RuntimeError, match="content-disposition"):
            list(Pipe.of([f"{server.url}/page"]).read_from_gdrive())
        quota = Pipe.of([f"{server.url}/quota"])
        with pytest.raises(RuntimeError, match="quota was exceeded"):
            list(quota.read_from_gdrive())
        with pytest.warns(UserWarning, match=r"quota was exceeded\., skipping"):
            assert list(quota.read_from_gdrive(skip_on_error=True)) == []


def test_a_remote_reader_chooses_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []

    def note(kind: str) -> Any:
        return lambda self, url: calls.append((kind, url))

    monkeypatch.setattr(read_from_http.ReadFromGdrive, "apply", note("gdrive"))
    monkeypatch.setattr(read_from_http.ReadFromHttp, "apply", note("http"))
    urls = ["https://drive.google.com/uc?id=1", "https://docs.google.com/x", "https://example.com/drive.google.com"]
    list(Pipe.of(urls).read_from_remote())
    assert [kind for kind, _ in calls] == ["gdrive", "gdrive", "http"]
