"""Tokenize: text as arrays of tokens, with whatever tokenizer the user has.

    Hugging Face tokenizers   `tokenizers.Tokenizer`, and transformers' fast tokenizers by the one inside them: the
                              truncation and padding that they are set to are left alone, so threads may share one
    tiktoken                  `encode_ordinary`: text that looks like a special token is text
    any callable              text -> a sequence of ints

A tokenizer travels to workers as itself. Worker processes set TOKENIZERS_PARALLELISM to false unless the user has set
it: there are as many workers as there is work, and threads of a pool do not survive a fork.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.op import Each

Tokens = NDArray[Any]
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Tokenize(Each[Any, Any]):
    """The tokens of each text, or of the field `text` of each document."""

    tokenizer: Any
    text: str | None = None
    eos: int | None = None
    """A token that ends every document."""
    bos: int | None = None
    special: bool = False
    """Let a Hugging Face tokenizer add its own special tokens."""
    keep: bool = False
    """Keep the document, with its tokens under "tokens" in the place of the text."""
    user = True

    def __post_init__(self) -> None:
        encoder(self.tokenizer, self.special)
        if self.keep and self.text is None:
            raise BadOption("tokenize(keep=True) is for documents with fields: say which one is the text, text='...'")

    def apply(self, sample: Any) -> Any:
        tokens = self.encode(_text(sample, self.text))
        if not self.keep:
            return tokens
        return {**{name: value for name, value in sample.items() if name != self.text}, "tokens": tokens}

    def encode(self, text: str) -> Tokens:
        """The tokens of one text."""
        ids = encoder(self.tokenizer, self.special)(text)
        first = [] if self.bos is None else [self.bos]
        last = [] if self.eos is None else [self.eos]
        return np.array([*first, *ids, *last], np.int32)

    def describe(self) -> str:
        return f"tokenize({type(self.tokenizer).__name__}{'' if self.text is None else f', text={self.text!r}'})"

    def identity(self) -> tuple[Any, ...]:
        return ("tokenize", fingerprint(self.tokenizer), self.text, self.eos, self.bos, self.special, self.keep)


def encoder(tokenizer: Any, special: bool = False) -> Encode:
    """How this tokenizer turns a text into ids."""
    kind = _kind(tokenizer)
    if kind == "fast":
        return lambda text: tokenizer.encode(text, add_special_tokens=special).ids
    if kind == "transformers":
        inner = getattr(tokenizer, "backend_tokenizer", None)
        if inner is not None:
            # Not `tokenizer(text)`: that sets truncation on the one object that threads share.
            return lambda text: inner.encode(text, add_special_tokens=special).ids
        return lambda text: tokenizer.encode(text, add_special_tokens=special)
    if kind == "tiktoken":
        ordinary: Encode = tokenizer.encode_ordinary
        return ordinary
    if not callable(tokenizer):
        raise BadOption(
            "tokenize() takes a tokenizer of tokenizers, transformers or tiktoken, or a function from text to ids, "
            f"not {type(tokenizer).__name__}"
        )
    function: Encode = tokenizer
    return function


def fingerprint(tokenizer: Any) -> str:
    """What a tokenizer does, as a short text. (Not by pickle: that changes when truncation is set.)"""
    kind = _kind(tokenizer)
    inner = getattr(tokenizer, "backend_tokenizer", None) if kind == "transformers" else tokenizer
    if inner is not None and kind in ("fast", "transformers"):
        said = json.loads(inner.to_str())
        said.pop("truncation", None)
        said.pop("padding", None)
        return f"fast {blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=8).hexdigest()}"
    if kind == "tiktoken":
        return f"tiktoken {tokenizer.name} {tokenizer.n_vocab}"
    name = getattr(tokenizer, "__qualname__", None)
    return f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}" if name is None else str(name)


def _kind(tokenizer: object) -> str:
    """Told by the class: none of the packages need be installed."""
    for base in type(tokenizer).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "tokenizers" and base.__name__ == "Tokenizer":
            return "fast"
        if package == "tiktoken" and base.__name__ == "Encoding":
            return "tiktoken"
        if package == "transformers" and base.__name__ == "PreTrainedTokenizerBase":
            return "transformers"
    return "callable"


def vocabulary(tokenizer: Any) -> int | None:
    """How many different tokens there can be, if the tokenizer says so."""
    kind = _kind(tokenizer)
    if kind == "fast":
        return int(tokenizer.get_vocab_size())
    if kind == "transformers":
        return len(tokenizer)
    return int(tokenizer.n_vocab) if kind == "tiktoken" else None


def _text(sample: object, name: str | None) -> str:
    if name is not None:
        if not isinstance(sample, Mapping) or name not in sample:
            found = ", ".join(map(str, sample)) if isinstance(sample, Mapping) else type(sample).__name__
            raise BadOption(f"tokenize(text={name!r}): a document has no such field, only {found}")
        sample = sample[name]
    elif isinstance(sample, Mapping):
        raise BadOption(
            f"tokenize() got a document with the fields {', '.join(map(str, sample))}: say which one is the text, "
            "text='...'"
        )
    if isinstance(sample, bytes):
        return sample.decode()
    if not isinstance(sample, str):
        raise BadOption(f"tokenize() takes text, not {type(sample).__name__}")
    return sample
