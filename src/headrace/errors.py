"""Every error that headrace itself raises, in one tree.

    HeadraceError
    ├── BadOption          an argument is wrong; the message says what to write instead  (also ValueError)
    ├── BadPipe            the graph cannot be run as it is written  (also ValueError)
    ├── NotPicklable       something in the pipe cannot travel to a worker  (also TypeError)
    ├── TooLarge           a file would take more memory than its limit, max_bytes, allows  (also ValueError)
    ├── MissingExtra       an optional package is not installed; names the extra  (also ModuleNotFoundError)
    ├── NoLength           the length cannot be known in advance  (also TypeError)
    ├── Closed             a closed loader was used  (also RuntimeError)
    ├── WorkerDied         a worker ended and the policy does not allow another  (also RuntimeError)
    ├── PoisonSample       one sample killed its worker twice  (also RuntimeError)
    ├── WorkerStuck        nothing arrived within the time-out  (also TimeoutError, RuntimeError)
    ├── TooManyErrors      the error budget is used up  (also RuntimeError)
    ├── SnapshotRefused    a snapshot does not fit this pipe, or is not a snapshot  (also ValueError)
    └── RanksDisagree      ranks of one job were given different things  (also RuntimeError)

An error of the user's own code keeps its own type: it is never wrapped in one of these. (`sys.exit()` in a worker is a
plain RuntimeError: it would end the training program in silence.)
"""

import errno
from collections.abc import Iterable
from functools import cache

from headrace.secrets import shown

LARGEST = 200_000_000
"""The limit of `TooLarge`, unless the user gives another one as `max_bytes`. It is here, and not beside what checks it
(`sources.limit`), because workers import the verbs, whose default it is, and no sources."""


class HeadraceError(Exception):
    """Root of the tree."""


class BadOption(HeadraceError, ValueError):
    """An argument is wrong."""


class BadPipe(HeadraceError, ValueError):
    """The graph cannot be run as it is written."""


class NotPicklable(HeadraceError, TypeError):
    """Something in the pipe cannot travel to a worker."""


class TooLarge(HeadraceError, ValueError):
    """A file would take more memory, when it is unpacked or decoded, than `max_bytes` allows."""


class MissingExtra(HeadraceError, ModuleNotFoundError):
    """An optional package is not installed."""


class NoLength(HeadraceError, TypeError):
    """The length cannot be known in advance."""


class Closed(HeadraceError, RuntimeError):
    """A closed loader was used."""


class WorkerDied(HeadraceError, RuntimeError):
    """A worker ended and the policy does not allow another."""


class PoisonSample(HeadraceError, RuntimeError):
    """One sample killed its worker twice."""


class WorkerStuck(HeadraceError, TimeoutError, RuntimeError):
    """Nothing arrived within the time-out."""


class TooManyErrors(HeadraceError, RuntimeError):
    """The error budget is used up."""


class SnapshotRefused(HeadraceError, ValueError):
    """A snapshot does not fit this pipe, or is not a snapshot."""


class RanksDisagree(HeadraceError, RuntimeError):
    """Ranks of one job were given different things."""


def check_whole(name: str, value: object, least: int = 0) -> None:
    """Raise unless an argument is a whole number >= `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadOption(f"{name} must be a whole number >= {least}, not {value!r}")


def missing(extra: str, package: str) -> MissingExtra:
    """The one-line error for an optional package that is not installed."""
    return MissingExtra(f"{package} is not installed; it comes with: pip install 'headrace[{extra}]'")


def name_file(error: Exception, path: str) -> None:
    """Say in a note which file an error is about, if it does not say so itself; hide what is secret in its URL."""
    open_to_all = shown(path)
    if open_to_all != path:
        error.args = tuple(arg.replace(path, open_to_all) if isinstance(arg, str) else arg for arg in error.args)
    path = open_to_all
    note = f"headrace: reading {path}"
    if path not in str(error) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def hint_at_limit(error: BaseException) -> None:
    """If the system has refused to open another file: add a note that says which limit to raise."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        note = (
            "headrace: too many files are open at once, here or in a worker; raise the limit (`ulimit -n 65536` in the "
            "shell that starts the program), hold fewer batches, or close what the dataset opens"
        )
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def meant(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown word: the known word that was probably meant, or `otherwise`."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else otherwise
    return f"; {hint}" if hint else ""


@cache
def warn_once(text: str) -> None:
    """A line of log, once in a process, not once an epoch."""
    import logging

    logging.getLogger("headrace").warning("%s", text)
