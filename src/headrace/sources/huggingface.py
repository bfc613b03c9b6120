"""Hugging Face: a data set of the hub, as a stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import MissingExtra
from headrace.op import Here, Source, place


@dataclass(frozen=True, slots=True)
class HuggingFace(Source[Any]):
    """The samples of `datasets.load_dataset(path, **options)`, streamed unless the options say otherwise."""

    path: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        import importlib.util

        if importlib.util.find_spec("datasets") is None:
            raise MissingExtra("datasets is not installed; it comes with: pip install datasets")

    def flow(self, here: Here) -> Iterator[Any]:
        import importlib

        loaded = importlib.import_module("datasets").load_dataset(
            path=self.path, **{"streaming": True, **dict(self.options)}
        )
        for position, sample in enumerate(loaded):
            place.at(here, position)
            if position % here.strands == here.strand:
                yield sample

    @classmethod
    def name(cls) -> str:
        return "huggingface"
