"""On-disk cache: a section of a pipe that runs only for samples whose files are not on disk yet.

    urls.on_disk_cache(filepath_fn=name).read_from_http().end_caching(same_filepath_fn=True)
         └ which file belongs to a sample     └ the section      └ write its output into files, emit their paths

Each sample goes through the section by itself, so the paths come in the same order whether the files exist or not. A
file appears under its name only when it is complete. Of several processes that need the same file one makes it, under a
lock that the kernel releases when its owner dies; the others wait for it.

If a section makes other files than those of `filepath_fn` (many out of one, say), a list of them is written beside the
first of these.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

from headrace.errors import BadOption
from headrace.op import Each, Flat, Here, Op, place
from headrace.ops.files.check_hash import check_kind, compare, file_hash
from headrace.ops.files.save_to_disk import write_file, writing
from headrace.plan.seed import key
from headrace.sources.lock import hold, sweep
from headrace.sources.open import open_path

LIST = ".headrace_list"


@dataclass(frozen=True, slots=True, eq=False)
class OnDiskCache(Each[Any, Any]):
    """The beginning of a cached section: which files belong to a sample, and how they are checked."""

    filepath_fn: Callable[[Any], Any] | None = None
    hash_dict: Mapping[str, str] | None = None
    hash_type: str = "sha256"
    extra_check_fn: Callable[[str], bool] | None = None
    user = True

    def __post_init__(self) -> None:
        if self.hash_dict is not None:
            check_kind(self.hash_type)

    def apply(self, sample: object) -> Any:
        raise RuntimeError("Please call `end_caching()` before iteration.")

    def targets(self, sample: Any) -> list[str]:
        """The files that belong to a sample."""
        named = sample if self.filepath_fn is None else self.filepath_fn(sample)
        assert not isinstance(named, GeneratorType), (
            "filepath_fn must return a path or a list of paths, not a generator"
        )
        return [os.fspath(path) for path in (named if isinstance(named, list | tuple) else [named])]

    def is_right(self, path: str, strict: bool = False) -> bool:
        """Whether the file exists and passes the checks; with `strict`, another hash is an error."""
        if not os.path.exists(path):
            return False
        if self.hash_dict is not None:
            if path not in self.hash_dict:
                raise RuntimeError(f"Unspecified hash for file {path}")
            computed = file_hash(path, self.hash_type)
            if strict:
                compare(path, computed, self.hash_dict[path])
            elif computed != self.hash_dict[path]:
                return False
        return self.extra_check_fn is None or bool(self.extra_check_fn(path))


@dataclass(frozen=True, slots=True, eq=False)
class EndCaching(Flat[Any, str]):
    """The paths of each sample's files, made by `section` where they are missing."""

    cache: OnDiskCache
    section: tuple[Op[Any, Any], ...] = ()
    mode: str = "wb"
    filepath_fn: Callable[[Any], str] | None = None
    same_filepath_fn: bool = False
    skip_read: bool = False
    timeout: float = 300
    user = True

    def __post_init__(self) -> None:
        if self.filepath_fn is not None and self.same_filepath_fn:
            raise BadOption("`filepath_fn` is mutually exclusive with `same_filepath_fn`")
        object.__setattr__(self, "mode", writing(self.mode))

    def spread(self, sample: object) -> Iterator[str]:
        targets = self.cache.targets(sample)
        if not targets:
            return
        found = self._found(targets)
        if found is None:
            with ExitStack() as held:
                self._claim(targets[0], held)
                found = self._found(targets)  # another process may have made them meanwhile
                if found is None:
                    found = self._make(sample, targets)
        else:
            sweep(_lock(targets[0]))  # left by a process that was killed after it had made the file
        yield from found

    def _claim(self, target: str, held: ExitStack) -> None:
        """Become the one process that makes this file."""
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        try:
            held.enter_context(hold(_lock(target), self.timeout))
        except TimeoutError as error:
            raise Exception(
                f"OnDiskCache Exception: {target} expected to be written by different process, "
                f"but file is not ready in {self.timeout} seconds. ({error})"
            ) from None

    def _found(self, targets: list[str]) -> list[str] | None:
        """The files of a sample, if all of them exist and pass the checks."""
        listed = _listed(targets[0])
        if listed is not None and all(os.path.exists(p) for p in listed):
            return listed
        return targets if all(self.cache.is_right(p) for p in targets) else None

    def _make(self, sample: object, targets: list[str]) -> list[str]:
        path_of = self.cache.filepath_fn if self.same_filepath_fn else self.filepath_fn
        made = []
        for result in self._run(sample):
            if not isinstance(result, tuple | list) or len(result) != 2:
                raise TypeError(
                    f"end_caching() needs (path, content) pairs to write, but the section made {type(result).__name__}"
                )
            meta, data = result
            if self.skip_read and hasattr(data, "read"):
                raise TypeError("end_caching(skip_read=True) takes bytes or text, but the section made a stream")
            path = os.fspath(meta if path_of is None else path_of(meta))
            write_file(path, data, self.mode)
            made.append(path)
        if sorted(made) == sorted(targets):
            for path in targets:
                self.cache.is_right(path, strict=True)
            if os.path.exists(targets[0] + LIST):
                os.unlink(targets[0] + LIST)
            return targets
        write_file(targets[0] + LIST, json.dumps(made), "w")
        return made

    def _run(self, sample: object) -> Iterator[Any]:
        """The output of the section for this one sample."""
        spot = place.spot
        here = spot.here or Here(0, 0, 0)
        samples: Iterator[Any] = iter([sample])
        for number, op in enumerate(self.section):
            seed = key(here.seed, "section", spot.position, number)
            samples = op.flow(samples, Here(seed, here.epoch, here.ordinal, spot=here.spot))
        return samples

    def describe(self) -> str:
        return f"end_caching({' > '.join(op.describe() for op in self.section)}, mode={self.mode!r})"


def _lock(path: str) -> str:
    return f"{path}.lock"


def _listed(path: str) -> list[str] | None:
    try:
        with open_path(path + LIST, "r") as file:
            return list(json.load(file))
    except FileNotFoundError:
        return None
