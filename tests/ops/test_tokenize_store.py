"""Token stores: what `headrace tokenize` writes is read back, and goes on after a kill to the same bytes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.cli import main
from headrace.errors import BadOption
from headrace.ops.text.store import TokenWriter
from tests.conftest import RunScript
from tests.ops.text_data import texts

KILLED = """
import os, signal, sys
from headrace.cli import main, tokenize
tokenize.MARK = 0.0
seen = 0
def killer(text):
    global seen
    seen += 1
    if len(sys.argv) > 3 and seen == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return list(text.encode())
tokenize.byte_tokens = killer
killer.__qualname__ = "byte_tokens"
raise SystemExit(main(["tokenize", sys.argv[1], "--out", sys.argv[2], "--tokenizer", "bytes", "--eos", "256"]))
"""


def corpus(folder: Path, count: int = 500) -> tuple[Path, list[str]]:
    said = texts(count)
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(said)))
    return path, said


def files(prefix: Path) -> list[bytes]:
    return [prefix.with_suffix(ending).read_bytes() for ending in (".bin", ".idx")]


def test_text_is_tokenized_once_and_read_back_by_every_reader(tmp_path: Path, capsys: Any) -> None:
    path, said = corpus(tmp_path)
    args = ["tokenize", str(path), "--tokenizer", "bytes", "--eos", "256"]
    assert main([*args, "--out", str(tmp_path / "one")]) == 0
    assert "500 documents" in capsys.readouterr().out
    expected = [[*text.encode(), 256] for text in said]
    assert [d.tolist() for d in Loader(Pipe.tokens(tmp_path / "one"))] == expected
    assert [d.tolist() for d in Loader(Pipe.stored(tmp_path / "one.bin"))] == expected
    assert main([*args, "--out", str(tmp_path / "two"), "--workers", "2"]) == 0
    assert files(tmp_path / "two") == files(tmp_path / "one")
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.progress")) + list(tmp_path.glob("*.lengths"))
    assert main([*args, "--out", str(tmp_path / "wide"), "--dtype", "int32"]) == 0
    assert [d.tolist() for d in Loader(Pipe.tokens(tmp_path / "wide"))] == expected


@pytest.mark.timeout(120)
def test_a_killed_run_goes_on_where_it_was_to_the_same_bytes(tmp_path: Path, run_script: RunScript) -> None:
    path, _ = corpus(tmp_path)
    assert run_script(KILLED, str(path), str(tmp_path / "whole")).returncode == 0
    for kill in ("200", "150"):
        assert run_script(KILLED, str(path), str(tmp_path / "cut"), kill).returncode == -9
    marked = json.loads((tmp_path / "cut.progress").read_text())["documents"]
    assert 192 <= marked < 500
    assert run_script(KILLED, str(path), str(tmp_path / "cut")).returncode == 0
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_another_run_over_unfinished_files_is_refused(tmp_path: Path) -> None:
    writer = TokenWriter(str(tmp_path / "a"), "uint16", {"tokenizer": "x"})
    writer.append([np.array([1, 2])])
    writer.mark(None)
    writer.close()
    with pytest.raises(BadOption, match="another tokenizer"):
        TokenWriter(str(tmp_path / "a"), "uint16", {"tokenizer": "y"})
    again = TokenWriter(str(tmp_path / "a"), "uint16", {"tokenizer": "x"})
    assert (again.documents, again.tokens) == (1, 2)
    with pytest.raises(BadOption, match="does not fit"):
        again.append([np.array([70_000])])
    again.close()
    with pytest.raises(BadOption, match="not 'uint8'"):
        TokenWriter(str(tmp_path / "b"), "uint8", {})


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path, capsys: Any) -> None:
    path, _ = corpus(tmp_path, 3)
    out = ["--out", str(tmp_path / "x")]
    for args, said in (
        ([str(path), "--tokenizer", "missing.json"], "no such file"),
        ([str(path), "--tokenizer", "nowhere:f"], "nowhere"),
        ([str(path), "--tokenizer", "tiktoken:none"], "tiktoken knows no encoding"),
        ([str(tmp_path / "a.txt"), "--tokenizer", "bytes"], "give files that all are .jsonl"),
        ([str(path), "--tokenizer", "bytes", "--text", "body"], "no such field"),
    ):
        assert main(["tokenize", *args, *out]) == 2
        assert said in capsys.readouterr().err
