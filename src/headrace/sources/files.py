"""Files: names of files as a fixed list, of which any worker can take any."""

import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from headrace.op import Here, Indexed, Source
from headrace.secrets import shown


@dataclass(frozen=True, slots=True)
class Files(Source[str]):
    """These paths, in this order."""

    paths: tuple[str, ...]
    quiet = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(os.fspath, self.paths)))

    def size(self) -> int:
        return len(self.paths)

    def get(self, position: int) -> str:
        return self.paths[position]

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        assert found is not None
        found.light = True
        return found

    def describe(self) -> str:
        few = ", ".join(map(repr, map(shown, self.paths[:2])))
        return f"files({few}{f', ... {len(self.paths)} in all' if len(self.paths) > 2 else ''})"

    def identity(self) -> tuple[Any, ...]:
        # The folder is left out: a data set that was moved is still the same one.
        folder = len(os.path.dirname(os.path.commonprefix(self.paths)))  # noqa: RUF071 - URLs are no paths
        names = "\0".join(p[folder:] for p in self.paths)
        return ("files", len(self.paths), blake2b(names.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest())
