"""Verbs of the way from text to batches of tokens."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import BadOption
from headrace.ops.shape.batch import Unbatch
from headrace.pipe.verbs.growing import Verbs, grow, start

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class TextVerbs(Verbs):
    """What a Pipe can do with text and tokens."""

    __slots__ = ()

    @staticmethod
    def tokens(paths: Paths) -> "Pipe[Any]":
        """The documents of token files (`.bin` and `.idx`, as Megatron and `headrace tokenize` write them)."""
        from headrace.ops.text.tokens import StoredTokens, token_files

        return start(StoredTokens(token_files(paths)))

    def tokenize(
        self,
        tokenizer: Any,
        text: str | None = None,
        *,
        eos: int | None = None,
        bos: int | None = None,
        special: bool = False,
        keep: bool = False,
        batched: bool = False,
    ) -> "Pipe[Any]":
        """The tokens of each text, or of the field `text` of each document, as an array; `eos` ends every document.

        Takes tokenizers of Hugging Face (`special`: with their own special tokens), of tiktoken, and any function, with
        `batched` one that takes a list of texts. A batch of documents is tokenized in one call, to the same ids.
        """
        from headrace.ops.text.tokenize import Tokenize

        return grow(self, Tokenize(tokenizer, text, eos, bos, special, keep, batched))

    def sized(self, lengths: Sequence[int] | str | os.PathLike[str]) -> "Pipe[Any]":
        """The same documents, of which it is known how many tokens each has: one number for each, or the file that
        `headrace.measure()` has made of this pipe, which also knows what filters leave."""
        from headrace.ops.text.sized import Measured, Measurement, Sized

        if isinstance(lengths, str | os.PathLike):
            return grow(self, Measured(Measurement.load(os.fspath(lengths), self.fingerprint())))
        return grow(self, Sized(lengths))

    def bucket(
        self,
        tokens: int,
        *,
        padded: bool = True,
        length: Callable[[Any], int] | None = None,
        window: int = 1024,
    ) -> "Pipe[list[Any]]":
        """Batches of samples of like length, of at most `tokens` tokens (`padded`: rows times the longest of them).

        `window` positions at a time are sorted and cut by themselves, so batches depend on neither workers nor ranks.
        """
        from headrace.ops.text.bucket import BucketBatches, BucketWindows
        from headrace.ops.text.numbered import MANY
        from headrace.plan.balance import StepPlan

        plan = StepPlan(tokens=tokens, padded=padded, window=window)
        indexed = None if length is not None else self.indexed(0, 0)
        if indexed is not None and indexed.lengths is not None and indexed.length <= MANY:
            return grow(self, BucketBatches(plan))
        return grow(grow(self, BucketWindows(plan, length)), Unbatch())

    def balance(
        self,
        *,
        rows: int | None = None,
        tokens: int | None = None,
        like: bool = True,
        padded: bool = False,
        cost: Callable[[Any], Any] | None = None,
        window: int = 0,
        drop_last: bool = False,
    ) -> "Pipe[list[Any]]":
        """Shares of global steps of `rows` samples, or at most `tokens` tokens, which are dealt to ranks by cost.

        A step holds the same samples for any number of ranks, of like lengths, and each rank about the same cost: the
        sum of squared lengths, or what `cost` says of an array of lengths. The lengths must be known.
        """
        from headrace.ops.text.balance import Balance
        from headrace.plan.balance import StepPlan

        plan = StepPlan(rows, tokens, like, padded, window)
        indexed = self.indexed(0, 0)
        if indexed is None or indexed.lengths is None:
            raise BadOption(
                "balance() deals samples by their lengths, which are not known here without reading them: use it "
                "directly behind stored tokens, sized(), shuffle(), mix() or pack() of these, or use bucket()"
            )
        return grow(self, Balance(rows or plan.window, drop_last, plan, cost))

    def pack(
        self,
        length: int,
        *,
        how: Literal["split", "fit"] = "split",
        form: Literal["padded", "flat"] = "padded",
        long: Literal["split", "truncate", "drop", "error"] = "split",
        separator: int | None = None,
        pad: int = 0,
        overlap: int = 0,
        drop_tail: bool = False,
        positions: Literal["piece", "document"] = "piece",
        window: int | None = None,
    ) -> "Pipe[dict[str, Any]]":
        """Rows of `length` tokens out of documents: end to end and cut ("split"), or whole where they "fit".

        Rows depend on neither workers nor ranks. Where lengths are known (stored tokens), any row can be had by its
        number; otherwise `window` positions at a time are packed by themselves. See docs/text.md.
        """
        from headrace.ops.text.pack import PackWindows, pack_known
        from headrace.ops.text.rows import RowLayout
        from headrace.plan.packing import WINDOW, Packing

        packing = Packing(length, how, long, overlap, drop_tail, WINDOW.get(how, 1) if window is None else window)
        layout = RowLayout(form, pad, separator, positions)
        known = pack_known(packing, layout, self.indexed(0, 0))
        if known is not None:
            return grow(self, known)
        return grow(grow(self, PackWindows(packing, layout)), Unbatch())
