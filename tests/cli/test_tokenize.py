"""`headrace tokenize`: a broken line stops it with one line that names it, or is left out and written down."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Loader, Pipe
from headrace.cli import main

BROKEN = 117
LINES = 200


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    lines = [json.dumps({"text": f"a document {i}"}) for i in range(LINES)]
    lines[BROKEN] = '{"text": "broken" here'
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_broken_line_is_named_as_editors_count_lines(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["tokenize", str(corpus), "--out", str(corpus.with_name("t")), "--tokenizer", "bytes"]
    assert main(args) == 1
    said = capsys.readouterr().err.strip()
    assert f"a.jsonl, in line {BROKEN + 1}, at byte" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("file", "option", "words"),
    [("no.jsonl", [], "'no.jsonl'"), ("no.parquet", [], "'no.parquet'"), ("a.jsonl", ["--eos", "-5"], "--eos -5")],
)
def test_a_file_or_token_that_cannot_be_is_refused_with_one_line(
    corpus: Path,
    file: str,
    option: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(corpus.parent)
    assert main(["tokenize", file, "--out", "t", "--tokenizer", "bytes", *option]) == 2
    text = capsys.readouterr().err
    assert words in text
    assert text.count("\n") == 1


def test_what_was_written_is_told_as_json(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(corpus.with_name("t"))
    args = ["tokenize", str(corpus), "--out", out, "--tokenizer", "bytes", "--on-error", "skip", "--json"]
    assert main(args) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tokens"] == sum(len(tokens) for tokens in Loader(Pipe.tokens(out)))
    del said["tokens"]
    assert said == {"file": f"{out}.bin", "documents": LINES - 1, "dtype": "uint16", "left_out": 1}


def test_blank_lines_are_not_counted_wrongly(corpus: Path) -> None:
    corpus.write_text("\n" + corpus.read_text())
    with Loader(Pipe.stored(corpus)) as loader, pytest.raises(json.JSONDecodeError) as caught:
        list(loader)
    assert any("a.jsonl, at byte" in note for note in caught.value.__notes__)
    assert not any("in line" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_read_is_left_out_and_written_down(
    corpus: Path, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    out, quarantine = corpus.with_name("t"), corpus.with_name("q.jsonl")
    args = ["tokenize", str(corpus), "--out", str(out), "--tokenizer", "bytes", "--workers", str(workers)]
    assert main([*args, "--quarantine", str(quarantine)]) == 2
    assert "add --on-error skip" in capsys.readouterr().err
    assert main([*args, "--on-error", "skip", "--quarantine", str(quarantine)]) == 0
    assert f"{LINES - 1} documents" in (said := capsys.readouterr().out)
    assert "1 left out" in said
    documents = [bytes(one.tolist()).decode() for one in Loader(Pipe.tokens(out))]
    assert documents == [f"a document {i}" for i in range(LINES) if i != BROKEN]
    _, row = map(json.loads, quarantine.read_text().splitlines())
    assert (row["position"], f"in line {BROKEN + 1}" in row["error"]) == (BROKEN, True)


def test_error_and_quarantine_say_one_position_also_behind_pack(corpus: Path) -> None:
    pipe = Pipe.stored(corpus).shuffle().tokenize(lambda text: list(text.encode()), "text").pack(32).batch(4).collate()
    with Loader(pipe, seed=1) as loader, pytest.raises(json.JSONDecodeError) as caught:
        list(loader)
    quarantine = corpus.with_name("q.jsonl")
    with Loader(pipe, seed=1, on_error="skip", quarantine=quarantine) as loader:
        list(loader)
    _, row = map(json.loads, quarantine.read_text().splitlines())
    assert f"at position {row['position']} (index {BROKEN} of the dataset)" in caught.value.__notes__[-1]


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    code = "import sys; from headrace.cli import main; sys.exit(main(['doctor']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
