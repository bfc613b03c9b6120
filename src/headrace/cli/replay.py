"""`headrace verify --quarantine FILE`: runs the samples of a quarantine file again, one ticket at a time.

An entry holds when its sample fails again, in the same op with the same error. Where arithmetic says which ticket a
sample belongs to, only the tickets of these samples are run; otherwise the epoch is read again.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.cli.proofs import Proof
from headrace.cli.subject import Subject
from headrace.engine.program import Program
from headrace.engine.snapshot import VERSION, check
from headrace.errors import BadOption, SnapshotRefused
from headrace.loader import Loader
from headrace.observe.lineage import inline, read_epoch, rerun
from headrace.observe.meter import Meter
from headrace.observe.quarantine import About, QuarantinedSample, read
from headrace.plan.share import Share
from headrace.plan.world import World

Failures = dict[tuple[int, str, int | None], str]
"""(position, op, index) -> error. (Several documents of one packed row may fail.)"""


def replay(subject: Subject, file: Path) -> Iterator[Proof]:
    loader = subject.loader(workers=0)
    runs = read(file)
    fitting = {about: entries for about, entries in runs.items() if _refusal(about, subject, loader) is None}
    if not fitting:
        *_, last = runs
        raise BadOption(f"{file}: {_refusal(last, subject, loader)}")
    for about, entries in fitting.items():
        yield from _run(loader, World(rank=about.rank, ranks=about.ranks), entries)
    if not any(fitting.values()):
        yield Proof("quarantine", None, f"{file} names no samples")


def _run(loader: Loader[Any], world: World, entries: list[QuarantinedSample]) -> Iterator[Proof]:
    program = replace(loader.program, skips=True)
    for epoch in sorted({entry.epoch for entry in entries}):
        of_epoch = [entry for entry in entries if entry.epoch == epoch]
        meter = Meter()
        if program.indexed and program.countable and len(program.stages) == 1:
            for ticket in sorted({_ticket(program, world, loader.ends, entry) for entry in of_epoch}):
                meter.skips += rerun(program, epoch, *ticket)[0].skipped
        else:
            policy = replace(inline(loader.policy), on_error="skip")
            for _ in read_epoch(program, policy, epoch, world, loader.ends, meter=meter):
                pass
        failures = {(position, op, index): error for position, op, error, index in meter.skips}
        for entry in of_epoch:
            yield _judge(entry, failures)


def _refusal(about: About, subject: Subject, loader: Loader[Any]) -> str | None:
    """Why these samples are not of this pipe, or None if they are."""
    ops = subject.known_as(list(about.pipe))
    try:
        check({"version": VERSION, "pipe": ops, "seed": about.seed, "epoch": 0, "at": None}, loader.pipe)
    except SnapshotRefused as refused:
        return str(refused).replace("snapshot", "file")
    if about.seed != loader.seed:
        return f"it was written with seed={about.seed}; name a Loader with that seed, not {loader.seed}"
    return None


def _ticket(
    program: Program, world: World, ends: str, entry: QuarantinedSample
) -> tuple[int, tuple[int, int, tuple[int, ...]]]:
    """The number and the payload of the ticket that the entry's sample belongs to."""
    stage = program.stages[0]
    indexed = program.head.indexed(program.seed, entry.epoch)
    assert indexed is not None
    length, ranks, rank = indexed.length, world.share_ranks, world.share_rank
    if stage.group is None:
        number = entry.position // program.block
        return number, (number * program.block, min(length, (number + 1) * program.block), ())
    policy, parts = "drop" if stage.drop_last else ends, indexed.parts is not None
    share = Share(length, stage.group, ranks, rank, policy, by_remainder=parts)
    # Ops on whole batches have no position of a sample: they are known by the number of their batch.
    whole = any(node.op.describe() == entry.op for node in stage.nodes)
    step = entry.position // ranks if whole else share.at(entry.position)[0]
    return step * ranks + rank, share.block(step).payload()


def _judge(entry: QuarantinedSample, failures: Failures) -> Proof:
    name = f"position {entry.position}"
    error = failures.get((entry.position, entry.op, entry.index))
    if error is None:
        return Proof(name, False, f"does not fail any more in {entry.op} (it was {entry.error}); was it repaired?")
    if error != entry.error:
        return Proof(name, False, f"fails in {entry.op} with {error} instead of {entry.error}")
    return Proof(name, True, f"fails again in {entry.op}: {error}")
