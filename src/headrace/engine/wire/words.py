"""Words: what to do about something that cannot travel, as a loader says it and as each door does."""

from dataclasses import dataclass

from headrace.engine.wire import codec
from headrace.errors import HeadraceError
from headrace.ops.shape.collate import UNLIKE
from headrace.ops.shape.exact import CONVERT

CURE = (
    "make it where it is used (for example in __getitem__ or worker_init), or use kind='thread', or "
    "start_method='fork' (not once CUDA or JAX has started)"
)
"""What to do about a part of a pipe that cannot travel."""
COLLATE_WORDS = (
    (UNLIKE, "let collate_fn fill them up, or keep them as lists"),
    (CONVERT, "convert the field in the dataset, or give collate_fn a function of your own"),
)
"""What to do about samples that cannot be collated, in the names of doors that have a `collate_fn`."""
WITHOUT_SKIPS = (
    (", or leave such samples out with on_poison='skip'", ""),
    (", or leave such batches out with on_poison='skip'", ""),
    (", or let stuck workers be replaced with on_stuck='replace'", ""),
)
"""For doors that have no such options."""
DATASET_CURE = (
    "make it where it is used (for example in __getitem__ or worker_init_fn), or use multiprocessing_context='fork'"
)
"""The same in torch's names, which more than one door has."""


@dataclass(frozen=True, slots=True)
class Words:
    """What to do about an error, in the words of a door: `with words:` around what may raise it.

    The options of doors have other names than those of a Loader. `there` is about something that cannot travel to a
    worker, `back` about the way back; `others` are further phrases of a Loader's errors, and what a door says instead.
    """

    there: str = CURE
    back: str = codec.CURE
    others: tuple[tuple[str, str], ...] = ()

    def retell(self, error: BaseException) -> None:
        # (An error about values is no HeadraceError; the phrases are ours only.)
        if isinstance(error, HeadraceError | ValueError) and error.args and isinstance(text := error.args[0], str):
            told = text
            for phrase, instead in ((CURE, self.there), (codec.CURE, self.back), *self.others):
                told = told.replace(phrase, instead)
            if told != text:
                error.args = (told, *error.args[1:])

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.retell(error)
