"""Snapshots: where an epoch stands, as plain data that outlives the process.

    {"version": 2, "pipe": [hash of each op], "seed": 7, "epoch": 3, "at": null | place, "ops": [each in a few words]}

("ops" is for messages, and not there where a pipe has a great many), and "weights", where a mixture's weights were
changed while the job ran (`ops.branch.journal`), and, inside an epoch, "shuffled": how many samples each shuffle of
everything has, because the order follows from that number, and "batches": the size of each batch() of which the place
counts whole batches (None: it counts samples there, and the size may change).
Only JSON values go in and come out: loading a snapshot executes nothing. A snapshot is checked as a whole before it is
used, and every refusal says what is wrong: where the pipe differs, which op does.
"""

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from headrace.engine.places import EpochPlace, JobPlace, plain_epoch_place, read_epoch_place
from headrace.engine.plain import brief
from headrace.errors import SnapshotRefused
from headrace.ops.shape.batch import Batch
from headrace.pipe.graph import Pipe

VERSION = 2
WORDS, LONGEST, SHORTEST, AROUND = 320, 100, 12, 4
"""Bytes of the descriptions of all ops; of one op at most and at least; and those of its quotes and comma."""
_words: "WeakKeyDictionary[Pipe[Any], list[str]]" = WeakKeyDictionary()


def snapshot(pipe: Pipe[Any], seed: int, epoch: int, at: EpochPlace | None, head: Pipe[Any]) -> dict[str, Any]:
    """A snapshot of an epoch at a place (None: before its start) of a program with this head."""
    # (Here, because mixtures need numpy, and a first batch should not wait for it.)
    from headrace.ops.branch.journal import journal_text, still_needed
    from headrace.ops.branch.mix import Mix

    state = {"version": VERSION, "pipe": pipe.fingerprint(), "seed": seed, "epoch": epoch, "at": plain_epoch_place(at)}
    if words := _described(pipe):
        state["ops"] = words
    nodes = pipe.nodes()
    if at is not None and (sizes := _shuffled(nodes)):
        state["shuffled"] = sizes
    if at is not None and any(counted := _counted_batches(nodes, at, head)):
        state["batches"] = counted
    journals = [journal_text(still_needed(node.op.journal, epoch)) for node in nodes if isinstance(node.op, Mix)]
    return {**state, "weights": journals} if any(journals) else state


def reweighted(pipe: Pipe[Any], state: dict[str, Any]) -> Pipe[Any]:
    """The pipe with the changes of weights that are in a snapshot, and no others."""
    from headrace.ops.branch.journal import read_journal
    from headrace.ops.branch.mix import Mix

    mixtures = [node for node in pipe.nodes() if isinstance(node.op, Mix)]
    journals = state.get("weights", [""] * len(mixtures))
    if not isinstance(journals, list) or len(journals) != len(mixtures):
        raise SnapshotRefused(f"the snapshot's changes of weights are not those of {len(mixtures)} mixtures")
    for node, journal in zip(mixtures, journals, strict=True):
        assert isinstance(node.op, Mix)
        if (found := read_journal(journal, len(node.inputs))) != node.op.journal:
            pipe = pipe.replaced(node, replace(node.op, journal=found))
    return pipe


def check(state: object, pipe: Pipe[Any]) -> tuple[int, int, EpochPlace | None]:
    """The seed, the epoch and the place of a snapshot of this pipe; SnapshotRefused if it is none."""
    if not isinstance(state, dict):
        raise SnapshotRefused(f"a snapshot is a dict, as state_dict() returns it, not {type(state).__name__}")
    missing = [k for k in ("version", "pipe", "seed", "epoch", "at") if k not in state]
    if missing:
        raise SnapshotRefused(
            f"this is not a whole snapshot: it has no {', '.join(map(repr, missing))}; give what state_dict() returned"
        )
    version = state["version"]
    if version != VERSION or isinstance(version, bool):
        old = ": it was taken by headrace 0.1, which wrote places in another way" if version == 1 else ""
        raise SnapshotRefused(
            f"snapshot version {brief(version)} is not known{old}; this headrace reads version {VERSION}"
        )
    for name in ("seed", "epoch"):
        value = state[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value >= 2**64:
            raise SnapshotRefused(f"the snapshot's {name} is {brief(value)}; a whole number >= 0 is expected")
    _same_pipe(state, pipe)
    if state["at"] is not None and "shuffled" in state:
        _same_sizes(state["shuffled"], pipe)
    if state["at"] is not None and "batches" in state:
        _same_batches(state["batches"], pipe)
    return state["seed"], state["epoch"], _place(state["at"])


def _shuffled(nodes: list[Pipe[Any]]) -> list[int | None]:
    """How many samples each shuffle has whose order depends on that number, first ones first; None: not known."""
    from headrace.ops.order.shuffle import Shuffle

    orders = [node for node in nodes if isinstance(node.op, Shuffle) and node.op.buffer_size is None]
    return [node.inputs[0].length() for node in orders]


def _same_sizes(saved: object, pipe: Pipe[Any]) -> None:
    sizes = _shuffled(pipe.nodes())
    if not isinstance(saved, list) or len(saved) != len(sizes):
        raise SnapshotRefused(f"the snapshot's numbers of shuffled samples are not those of {len(sizes)} shuffles")
    for then, now in zip(saved, sizes, strict=True):
        if then is not None and now is not None and then != now:
            raise SnapshotRefused(
                f"the snapshot stands inside an epoch in which shuffle() had {brief(then)} samples, and it has {now} "
                f"now: that is another order, in which some samples would come twice and others never. Go on with the "
                f"data as it was, or begin the next epoch with the new data: set the snapshot's 'at' to None and add "
                f"1 to its 'epoch'"
            )


def _counted_batches(nodes: list[Pipe[Any]], at: EpochPlace, head: Pipe[Any]) -> list[int | None]:
    """The size of each batch(), first ones first; None where another size may go on from this place."""
    in_head = {id(node) for node in head.nodes()}  # its outputs are counted, whatever they are made of
    # Steps since ranks told each other where they stood, and outputs of ops in the consumer that are recomputed, are
    # batches as all ops make them.
    every = isinstance(at, JobPlace) or any(op.skip for op in at.ops)
    return [node.op.size if every or id(node) in in_head else None for node in nodes if isinstance(node.op, Batch)]


def _same_batches(saved: object, pipe: Pipe[Any]) -> None:
    sizes = [node.op.size for node in pipe.nodes() if isinstance(node.op, Batch)]
    if not isinstance(saved, list) or len(saved) != len(sizes):
        raise SnapshotRefused(f"the snapshot's sizes of batches are not those of {len(sizes)} batch()")
    for then, now in zip(saved, sizes, strict=True):
        if then is not None and then != now:
            raise SnapshotRefused(
                f"the snapshot counts batches of {brief(then)}, and batch() makes batches of {now} here: some samples "
                "would come twice and others never. Go on with batches of that size, or change it between epochs"
            )


def _described(pipe: Pipe[Any]) -> list[str]:
    """Each op in a few words, for error messages; [] where so many ops would get too few words each."""
    known = _words.get(pipe)
    if known is None:
        nodes = pipe.nodes()
        most = min(LONGEST, WORDS // len(nodes) - AROUND)
        ops = [node.op.describe().encode("ascii", "replace").decode() for node in nodes] if most >= SHORTEST else []
        known = _words[pipe] = [op if len(op) <= most else f"{op[: most - 3]}..." for op in ops]
    return known


def _then(state: dict[str, Any], number: int) -> str:
    """What op number `number` was when the snapshot was taken, if that is in it."""
    words = state.get("ops")
    op = words[number] if isinstance(words, list) and number < len(words) else None
    if not isinstance(op, str):
        return "another one, the snapshot does not say which"
    shown = op if len(op) <= LONGEST else f"{op[:LONGEST]}..."
    return shown if shown.isprintable() else repr(shown)  # (the file may come from anywhere)


def _place(at: object) -> EpochPlace | None:
    try:
        return read_epoch_place(at)
    except RecursionError:
        raise SnapshotRefused("the snapshot's place is nested too deep to be one") from None


def _same_pipe(state: dict[str, Any], pipe: Pipe[Any]) -> None:
    saved = state["pipe"]
    if not isinstance(saved, list) or not all(isinstance(h, str) for h in saved):
        raise SnapshotRefused("the snapshot's 'pipe' is not a list of hashes")
    fingerprint, nodes = pipe.fingerprint(), pipe.nodes()
    for i, (theirs, ours) in enumerate(zip(saved, fingerprint, strict=False)):
        if theirs != ours:
            raise SnapshotRefused(
                f"this snapshot is of another pipe: op {i}, here {nodes[i].op.describe()}, was different when "
                f"it was taken (then {_then(state, i)}); load it with the pipe that it was taken with, or begin "
                "without it"
            )
    if len(saved) != len(fingerprint):
        raise SnapshotRefused(
            f"this snapshot is of another pipe: it had {len(saved)} ops, this one has {len(fingerprint)}; "
            "load it with the pipe that it was taken with, or begin without it"
        )
