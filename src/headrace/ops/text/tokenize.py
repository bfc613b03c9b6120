"""Tokenize: text as arrays of tokens, with whatever tokenizer the user has.

    Hugging Face tokenizers   `tokenizers.Tokenizer`, and transformers' fast tokenizers by the one inside them: the
                              truncation and padding that they are set to are left alone, so threads may share one
    tiktoken                  `encode_ordinary`: text that looks like a special token is text
    any callable              text -> a sequence of ints; with `batched`, a list of texts -> a list of them

A list of documents (a batch) is tokenized in one call, as are the documents of a window that is packed: the ids are the
same as one by one. A tokenizer travels to workers as itself. Worker processes set TOKENIZERS_PARALLELISM to false
unless the user has set it: there are as many workers as there is work, and threads of a pool do not survive a fork.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from numpy.typing import NDArray

from headrace.brief import arguments
from headrace.errors import BadOption
from headrace.op import Each
from headrace.ops.text.ids import ids_of

Tokens = NDArray[Any]
Encode = Callable[[str], Sequence[int]]
EncodeAll = Callable[[list[str]], list[Sequence[int]]]


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
    batched: bool = False
    """The tokenizer is a function that takes a list of texts."""
    user = True
    together = True

    def __post_init__(self) -> None:
        encoder(self.tokenizer, self.special, self.batched)
        if self.keep and self.text is None:
            raise BadOption("tokenize(keep=True) is for documents with fields: say which one is the text, text='...'")

    def apply(self, sample: object) -> Any:
        if isinstance(sample, list):
            return self.apply_all(sample)
        return self._document(sample, self.encode(_text(sample, self.text)))

    def apply_all(self, samples: Sequence[Any]) -> list[Any]:
        if any(isinstance(sample, list) for sample in samples):
            return [self.apply(sample) for sample in samples]
        texts = [_text(sample, self.text) for sample in samples]
        ids = batch_encoder(self.tokenizer, self.special, self.batched)(texts)
        if len(ids) != len(texts):
            raise BadOption(f"the tokenizer gave {len(ids)} lists of ids for {len(texts)} texts: give one for each")
        return [self._document(sample, self._ended(one)) for sample, one in zip(samples, ids, strict=True)]

    def encode(self, text: str) -> Tokens:
        """The tokens of one text."""
        return self._ended(encoder(self.tokenizer, self.special, self.batched)(text))

    def _ended(self, ids: Sequence[int]) -> Tokens:
        first = [] if self.bos is None else [self.bos]
        last = [] if self.eos is None else [self.eos]
        return ids_of([*first, *ids, *last] if first or last else ids, "what the tokenizer gave for a text")

    def _document(self, sample: object, tokens: Tokens) -> Tokens | dict[str, Any]:
        if not self.keep:
            return tokens
        assert isinstance(sample, Mapping)  # else it would have no field `text`
        if "tokens" in sample and self.text != "tokens":
            raise BadOption(
                "tokenize(keep=True) puts the ids under 'tokens', and a document has a field of that name already: "
                "rename it before"
            )
        return {**{name: value for name, value in sample.items() if name != self.text}, "tokens": tokens}

    def describe(self) -> str:
        return f"tokenize({', '.join([type(self.tokenizer).__name__, *arguments(self, ('tokenizer',))])})"

    def identity(self) -> tuple[Any, ...]:
        return ("tokenize", fingerprint(self.tokenizer), self.text, self.eos, self.bos, self.special, self.keep)


def encoder(tokenizer: object, special: bool = False, batched: bool = False) -> Encode:
    """How this tokenizer turns a text into ids."""
    kind, inner = _kind(tokenizer)
    if batched:
        if kind != "callable" or not callable(tokenizer):
            raise BadOption("tokenize(batched=True) is for a function that takes a list of texts: leave it out here")
        return lambda text: _only(tokenizer([text]))
    if kind == "fast":
        return lambda text: inner.encode(text, add_special_tokens=special).ids
    if kind == "slow":
        return lambda text: inner.encode(text, add_special_tokens=special)
    function: Encode = inner.encode_ordinary if kind == "tiktoken" else inner
    if not callable(function):
        raise BadOption(
            "tokenize() takes a tokenizer of tokenizers, transformers or tiktoken, or a function from text to ids, "
            f"not {type(tokenizer).__name__}"
        )
    return function


def batch_encoder(tokenizer: Any, special: bool = False, batched: bool = False) -> EncodeAll:
    """How this tokenizer turns many texts into ids: the same ids as one by one, wherever that is quicker."""
    kind, inner = _kind(tokenizer)
    if batched:
        return lambda texts: tokenizer(texts) if texts else []
    if kind == "fast" and inner.padding is None:
        # (A tokenizer that pads would make every text as long as the longest of the batch.) Without offsets, which
        # are not needed, tokenizers of 0.20 and later are a fifth faster.
        encode = getattr(inner, "encode_batch_fast", inner.encode_batch)
        return lambda texts: [one.ids for one in encode(texts, add_special_tokens=special)]
    if kind == "tiktoken":
        # One thread: as many workers as there is work for do this at the same time.
        return lambda texts: inner.encode_ordinary_batch(texts, num_threads=1)
    one_by_one = encoder(tokenizer, special)
    return lambda texts: [one_by_one(text) for text in texts]


def _only(made: Sequence[Sequence[int]]) -> Sequence[int]:
    if len(made) != 1:
        raise BadOption(f"the tokenizer gave {len(made)} lists of ids for 1 text: give one for each")
    return made[0]


def fingerprint(tokenizer: object) -> str:
    """A short text that is the same for tokenizers that give the same ids. (Not a hash of the pickle: that changes when
    truncation is set.)"""
    kind, inner = _kind(tokenizer)
    if kind == "fast":
        said = json.loads(inner.to_str())
        said.pop("truncation", None)
        said.pop("padding", None)
        return f"fast {blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=8).hexdigest()}"
    if kind == "tiktoken":
        return f"tiktoken {inner.name} {inner.n_vocab}"
    name = getattr(tokenizer, "__qualname__", None)
    return f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}" if name is None else str(name)


def vocabulary(tokenizer: object) -> int | None:
    """How many different tokens there can be, if the tokenizer says so."""
    kind, inner = _kind(tokenizer)
    if kind == "fast":
        return int(inner.get_vocab_size())
    if kind == "slow":
        return len(inner)
    return int(inner.n_vocab) if kind == "tiktoken" else None


def _kind(tokenizer: object) -> tuple[str, Any]:
    """Which kind it is, and the object that does the work. (Found by class name: no package need be installed.)"""
    for base in type(tokenizer).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "tokenizers" and base.__name__ == "Tokenizer":
            return "fast", tokenizer
        if package == "tiktoken" and base.__name__ == "Encoding":
            return "tiktoken", tokenizer
        if package == "transformers" and base.__name__ == "PreTrainedTokenizerBase":
            # The one inside, not `tokenizer(text)`: that sets truncation on the one object that threads share.
            inner = getattr(tokenizer, "backend_tokenizer", None)
            return ("slow", tokenizer) if inner is None else ("fast", inner)
    return "callable", tokenizer


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
