"""`headrace tokenize FILE ... --out PREFIX --tokenizer TOKENIZER`: tokenizes text once, into token files to be mapped.

    headrace tokenize corpus/*.jsonl --out tokens/corpus --tokenizer tokenizer.json --eos 0 --workers 8

It may be killed at any time and started again with the same arguments: it goes on where it was, and the files are the
same to the byte for any number of workers and interruptions. Read them with `Pipe.tokens("tokens/corpus")`.
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from headrace.engine.policy import Kind
from headrace.engine.wire.messages import failure
from headrace.errors import BadOption, HeadraceError, missing
from headrace.loader import Loader
from headrace.ops.text.store import SMALL, TokenWriter
from headrace.ops.text.tokenize import fingerprint, vocabulary
from headrace.pipe.graph import Pipe
from headrace.tracebacks import full

BATCH = 64
"""Documents that a worker tokenizes at a time."""
MARK = 5.0
"""Seconds between two snapshots: the most work that a kill costs."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace tokenize", description="Tokenize text once, into mapped token files."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON lines or Parquet")
    parser.add_argument("--out", required=True, metavar="PREFIX", help="writes PREFIX.bin and PREFIX.idx")
    parser.add_argument(
        "--tokenizer", required=True,
        help="a tokenizer.json, tiktoken:NAME, bytes (a token a byte), or module:function",
    )  # fmt: skip
    parser.add_argument("--text", default="text", help="the field that holds the text (default: text)")
    parser.add_argument("--eos", type=int, help="a token that ends every document")
    parser.add_argument("--bos", type=int, help="a token that begins every document")
    parser.add_argument("--workers", type=int, default=0, help="processes (default: 0, in this one)")
    parser.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise",
        help="what becomes of a document that cannot be read or tokenized (default: raise)",
    )  # fmt: skip
    parser.add_argument("--quarantine", metavar="FILE", help="with --on-error skip: writes there what was left out")
    parser.add_argument("--overwrite", action="store_true", help="write PREFIX anew if it is there already")
    parser.add_argument("--dtype", choices=("uint16", "int32"), help="how a token is written (default: by vocabulary)")
    parser.add_argument("--json", action="store_true", help="print what was written as one JSON object")
    args = parser.parse_args(argv)
    if args.quarantine is not None and args.on_error != "skip":
        raise BadOption("--quarantine is for documents that are left out: add --on-error skip")
    if Path(f"{args.out}.bin").exists() and not Path(f"{args.out}.progress").exists() and not args.overwrite:
        raise BadOption(f"{args.out}.bin is there already; choose another --out, or write it anew with --overwrite")
    for name in ("eos", "bos"):
        if getattr(args, name) is not None and getattr(args, name) < 0:
            raise BadOption(f"--{name} {getattr(args, name)}: a token, a whole number >= 0")
    tokenizer = load(args.tokenizer)
    try:
        source = _source(args.files, args.text)
    except FileNotFoundError as error:
        raise BadOption(str(error)) from None
    pipe = source.batch(BATCH).tokenize(tokenizer, args.text, eos=args.eos, bos=args.bos)
    words = vocabulary(tokenizer)
    least = max([0 if words is None else words - 1, args.eos or 0, args.bos or 0])
    dtype = args.dtype or ("uint16" if (words is not None or args.tokenizer == "bytes") and least < SMALL else "int32")
    about = {"pipe": pipe.fingerprint(), "tokenizer": fingerprint(tokenizer)}
    writer = TokenWriter(args.out, dtype, about)
    try:
        made, skipped = _write(writer, pipe, len(source), args)
    except (ValueError, LookupError, OSError) as error:  # of the text, most likely; other errors are shown whole
        if full() or isinstance(error, HeadraceError):
            raise
        print(f"headrace tokenize: {failure(error)}", file=sys.stderr)
        return 1
    finally:
        writer.close()
    if args.json:
        facts = {"file": made, "documents": writer.documents, "tokens": writer.tokens, "dtype": dtype}
        print(json.dumps({**facts, "left_out": skipped}, indent=2))
        return 0
    left_out = f"; {skipped} left out" if skipped else ""
    print(f"{made}: {writer.documents} documents, {writer.tokens} tokens ({dtype}){left_out}")
    return 0


def _write(writer: TokenWriter, pipe: Pipe[Any], documents: int, args: argparse.Namespace) -> tuple[str, int]:
    """The file that was made, and how many documents this run has left out."""
    progress = TokenProgress(writer, documents, sys.stderr)
    kind: Kind | None = "process" if args.workers else None
    with Loader(pipe, workers=args.workers, kind=kind, on_error=args.on_error, quarantine=args.quarantine) as loader:
        if writer.place is not None:
            loader.load_state_dict(writer.place)
        marked = time.monotonic()
        for batch in loader:
            writer.append(batch)
            if time.monotonic() - marked >= MARK:
                writer.mark(loader.state_dict())
                marked = time.monotonic()
            progress.show()
        skipped = loader.stats().skips
    progress.end()
    return writer.finish(), skipped


class TokenProgress:
    """One line that is written over on a terminal; in a log file, a line every ten seconds."""

    def __init__(self, writer: TokenWriter, documents: int, out: TextIO) -> None:
        self._writer, self._documents, self._out = writer, documents, out
        self._interval = 0.2 if out.isatty() else 10.0
        self._begun = self._shown = time.monotonic()
        self._tokens_before = writer.tokens

    def show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= self._interval:
            self._shown = now
            done = self._writer.documents / max(1, self._documents)
            speed = (self._writer.tokens - self._tokens_before) / (now - self._begun)
            bar = "#" * int(30 * done)
            text = f"[{bar:30}] {100 * done:5.1f} %  {self._writer.tokens} tokens, {speed:,.0f} a second"
            self._out.write(f"\r{text}" if self._out.isatty() else f"{text}\n")
            self._out.flush()

    def end(self) -> None:
        if self._out.isatty():
            self._out.write("\n")


def load(text: str) -> Any:
    """The tokenizer that `--tokenizer TEXT` means."""
    before, _, name = text.partition(":")
    if text == "bytes":
        return byte_tokens
    if text.startswith("tiktoken:"):
        try:
            import tiktoken
        except ModuleNotFoundError as error:
            raise missing("text", "tiktoken") from error
        try:
            return tiktoken.get_encoding(name)
        except (KeyError, ValueError) as error:
            raise BadOption(f"tiktoken knows no encoding {name!r}: {error}") from error
    if Path(text).is_file():
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise missing("text", "tokenizers") from error
        return Tokenizer.from_file(text)
    if not name:
        raise BadOption(
            f"--tokenizer {text}: no such file; give a tokenizer.json, tiktoken:NAME, bytes or module:function"
        )
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(before), name)
    except (ImportError, AttributeError) as error:
        raise BadOption(f"--tokenizer {text}: {error}") from error


def byte_tokens(text: str) -> list[int]:
    """A token a byte of UTF-8."""
    return list(text.encode())


def _source(files: list[str], text: str) -> Pipe[Any]:
    endings = {Path(file).suffix for file in files}
    if endings <= {".jsonl", ".ndjson"}:
        return Pipe.stored(files, "jsonl")
    if endings == {".parquet"}:
        return Pipe.parquet(files, columns=[text])
    raise BadOption(f"{', '.join(sorted(endings))}: give files that all are .jsonl, or all are .parquet")
