"""Tokenize: every kind of tokenizer, in workers of every kind; one thread in each of them."""

import os
from itertools import chain
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.ops.text.tokenize import Tokenize, fingerprint, vocabulary
from tests.ops.text_data import letters, texts

EXAMPLES = {"Tokenize": lambda of, at: of(texts(9)).tokenize(letters, eos=0)}


def fast(words: Any = ("time", "year", "people")) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate([*words, "?"])}, unk_token="?")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def bytes_of_tiktoken() -> Any:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([i]): i for i in range(256)}
    return tiktoken.Encoding("bytes", pat_str=r"[\s\S]", mergeable_ranks=ranks, special_tokens={"<end>": 256})


def environment(text: str) -> list[int]:
    """A tokenizer that says what a worker's environment allows."""
    return [int(os.environ.get("TOKENIZERS_PARALLELISM", "unset") == "false")]


def test_a_function_tokenizes_and_every_document_begins_and_ends_as_told() -> None:
    (tokens,) = Loader(Pipe.of(["a b"]).tokenize(letters, bos=90, eos=91))
    assert tokens.tolist() == [90, 1, 2, 91]
    assert tokens.dtype == np.int32


def test_a_tokenizer_of_hugging_face_gives_its_ids_in_processes_too() -> None:
    pipe = Pipe.of([{"text": "year time", "n": 1}, {"text": "people x", "n": 2}]).tokenize(fast(), "text")
    with Loader(pipe, workers=1, kind="process") as loader:
        assert [tokens.tolist() for tokens in loader] == [[1, 0], [2, 3]]
    assert vocabulary(fast()) == 4


def test_tiktoken_takes_text_that_looks_special_as_text() -> None:
    pipe = Pipe.of(["a<end>"]).tokenize(bytes_of_tiktoken(), eos=256)
    assert [tokens.tolist() for tokens in Loader(pipe)] == [[*b"a<end>", 256]]
    assert vocabulary(bytes_of_tiktoken()) == 257


def test_a_document_may_keep_its_other_fields() -> None:
    (document,) = Loader(Pipe.of([{"text": "ab", "source": "x"}]).tokenize(letters, "text", keep=True))
    assert document["source"] == "x"
    assert document["tokens"].tolist() == [1, 2]
    assert "text" not in document


def test_the_fingerprint_is_what_a_tokenizer_does_not_what_it_was_set_to_last() -> None:
    one, same, other = fast(), fast(), fast(("other", "words"))
    same.enable_truncation(5)
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    assert Tokenize(one).identity() == Tokenize(same).identity()
    assert "bytes" in fingerprint(bytes_of_tiktoken())
    assert fingerprint(letters) == "letters"


@pytest.mark.parametrize("method", ["server", "fork"])
def test_a_worker_tokenizes_with_one_thread(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    with Loader(Pipe.of(["x"]).tokenize(environment), workers=1, kind="process", start_method=method) as loader:
        assert [tokens.tolist() for tokens in loader] == [[1]]


def test_a_forked_worker_does_not_wait_for_threads_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    tokenizer = fast()
    tokenizer.encode_batch(["time year"] * 64)  # the parent has a pool of threads now
    encode = Batched(tokenizer)
    with Loader(Pipe.of(["time"] * 4).tokenize(encode), workers=1, kind="process", start_method="fork") as loader:
        assert [tokens.tolist() for tokens in loader] == [[0]] * 4


def letters_of_all(texts: list[str]) -> list[list[int]]:
    return [letters(text) for text in texts]


class Calls:
    """A tokenizer of lists that counts how often it is called."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, texts: list[str]) -> list[list[int]]:
        self.sizes.append(len(texts))
        return letters_of_all(texts)


def wordy(text: str) -> bool:
    return len(text) % 3 != 0


@pytest.mark.parametrize("kind", ["fast", "padding", "tiktoken", "callable", "batched"])
@pytest.mark.parametrize("workers", [0, 1])
def test_many_at_once_gives_the_same_tokens_as_one_by_one(kind: str, workers: int) -> None:
    made: Any = {"fast": fast, "padding": fast, "tiktoken": bytes_of_tiktoken}.get(kind, lambda: letters)()
    if kind == "padding":
        made.enable_padding()
    said = [text for text in texts(200) if text]
    single = [Tokenize(made, eos=0).encode(text).tolist() for text in said]
    options = {"batched": True} if kind == "batched" else {}
    tokenizer = letters_of_all if kind == "batched" else made
    of = Pipe.of(said)
    for pipe in (of.batch(32).tokenize(tokenizer, eos=0, **options), of.tokenize(tokenizer, eos=0, **options).batch(9)):
        with Loader(pipe, workers=workers, kind="process" if workers else None) as loader:
            assert [tokens.tolist() for batch in loader for tokens in batch] == single
    both = of.tokenize(tokenizer, eos=0, **options).shuffle().mix(of.filter(wordy).tokenize(made, eos=0), ends="drop")
    rows = list(Loader(both.pack(64, form="flat", window=50)))
    kept = [ids for ids, text in zip(single, said, strict=True) if wordy(text)]
    packed = np.concatenate([row["tokens"] for row in rows]).tolist()
    assert sorted(packed) == sorted(chain.from_iterable(single + kept))


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "mixed"])
@pytest.mark.parametrize("filtered", [False, True], ids=["whole", "filtered"])
def test_a_window_is_tokenized_in_few_calls_to_the_rows_of_single_ones(mixed: bool, filtered: bool) -> None:
    def rows(tokenizer: Any, batched: bool) -> list[list[int]]:
        source = Pipe.of(texts(150)).shuffle()
        made = source.mix(Pipe.of(texts(90, 5)), weights=[2, 1]) if mixed else source
        kept = made.filter(wordy) if filtered else made
        packed = kept.tokenize(tokenizer, batched=batched).pack(32, window=128)
        return [row["tokens"].tolist() for row in Loader(packed)]

    calls = Calls()
    assert rows(calls, True) == rows(letters, False)
    assert len(calls.sizes) <= 2 + 240 // 64


def test_a_text_that_fails_among_many_is_the_one_that_is_named_or_left_out() -> None:
    pipe = Pipe.of(["ab", 7, "c"]).tokenize(letters).pack(8, form="flat")
    with pytest.raises(BadOption, match="takes text, not int"):
        list(Loader(pipe))
    loader = Loader(pipe, on_error="skip")
    assert [row["tokens"].tolist() for row in loader] == [[1, 2, 3]]


def test_a_function_of_lists_must_give_one_for_each() -> None:
    with pytest.raises(BadOption, match="0 lists of ids for 2 texts"):
        list(Loader(Pipe.of(["a", "b"]).batch(2).tokenize(nothing, batched=True)))
    with pytest.raises(BadOption, match="takes a list of texts"):
        Pipe.of(["a"]).tokenize(fast(), batched=True)


def nothing(texts: list[str]) -> list[list[int]]:
    return []


class Batched:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode_batch([text] * 64)[0].ids  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("sample", "options", "said"),
    [
        ({"text": "a"}, {}, "say which one is the text"),
        ({"text": "a"}, {"text": "body"}, "no such field, only text"),
        (7, {}, "takes text, not int"),
    ],
)
def test_what_is_no_text_is_an_error_that_says_what_to_do(sample: Any, options: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        list(Loader(Pipe.of([sample]).tokenize(letters, **options)))


def test_what_is_no_tokenizer_is_refused_when_the_pipe_is_made() -> None:
    with pytest.raises(BadOption, match="takes a tokenizer"):
        Pipe.of(["a"]).tokenize(7)
    with pytest.raises(BadOption, match="keep=True"):
        Pipe.of(["a"]).tokenize(letters, keep=True)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (np.array([2**40 + 5]), "has the token id 1099511627781"),
        (np.array([2**32 - 1], np.uint32), "has the token id 4294967295"),
        ([2**40], "has the token id 1099511627776"),
        ([1.7, 2.2], "holds values of type float64"),
        (np.array([1.7]), "holds values of type float64"),
        (["12", "13"], "holds values of type <U2"),
        ([1, None], "holds values of type object"),
    ],
)
def test_what_is_no_id_is_not_made_one(made: Any, said: str) -> None:
    for pipe in (Pipe.of(["a"]), Pipe.of(["a"]).batch(1)):
        for options in ({}, {"eos": 0}):
            with pytest.raises(BadOption, match=f"{said}.*whole numbers within int32"):
                list(Loader(pipe.tokenize(lambda text: made, **options)))


def test_a_field_called_tokens_is_not_overwritten() -> None:
    documents = Pipe.of([{"text": "ab", "tokens": "mine"}])
    with pytest.raises(BadOption, match="'tokens', and a document has a field of that name already"):
        list(Loader(documents.tokenize(lambda text: [1, 2], "text", keep=True)))
    (kept,) = Loader(documents.tokenize(lambda text: [1, 2], "tokens", keep=True))  # the text itself is called so
    assert kept["tokens"].tolist() == [1, 2]
