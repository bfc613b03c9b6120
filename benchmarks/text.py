"""Documents and a tokenizer for the cases of the text path: the same in every process, whatever loader reads them.

Words are drawn by rank, as in a language; documents have lognormal lengths. The tokenizer is a byte-level BPE of
Hugging Face's tokenizers, trained on some of the documents.
"""

from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

WORDS = 20_000
VOCABULARY = 8_000
LETTERS = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))


@cache
def words() -> Any:
    chance = np.random.default_rng(11)
    often = 1 / np.arange(2, len(LETTERS) + 2)
    sizes = chance.integers(2, 11, WORDS)
    return np.array(["".join(chance.choice(LETTERS, n, p=often / often.sum())) for n in sizes])


def documents(count: int, seed: int) -> list[str]:
    """Texts of about 130 tokens in the mean, some of them far longer, none above 1024."""
    chance = np.random.default_rng(seed)
    lengths = np.clip(chance.lognormal(4, 1, count), 4, 700).astype(int)
    ranks = np.minimum(chance.zipf(1.3, int(lengths.sum())), WORDS) - 1
    said = words()[ranks].tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(said[stop - n : stop]) for stop, n in zip(ends, lengths.tolist(), strict=True)]


@cache
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # type: ignore[import-not-found, unused-ignore]

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(documents(800, 12), trainer)
    return made


class Encode:
    """A text, or many at once, as arrays of tokens; picklable, for loaders that leave tokenizing to a function."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, text: str) -> dict[str, Any]:
        return {"tokens": np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int32)}

    def many(self, rows: dict[str, list[str]]) -> dict[str, list[Any]]:
        found = self.tokenizer.encode_batch(rows["text"], add_special_tokens=False)
        return {"tokens": [one.ids for one in found]}


class Joined:
    """Token lists end to end, cut into rows: how users of HF datasets pack."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        joined = list(chain.from_iterable(rows["tokens"]))
        whole = len(joined) // self.length * self.length
        return {"tokens": [joined[at : at + self.length] for at in range(0, whole, self.length)]}


def without_end(loader: Any) -> Iterator[Any]:
    """Batches of one epoch after the other."""
    while True:
        yield from loader
