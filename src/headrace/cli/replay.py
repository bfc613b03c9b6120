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
from headrace.engine.feeds.positions import Items
from headrace.engine.program import Program
from headrace.engine.snapshot import VERSION, check
from headrace.errors import BadOption, SnapshotRefused
from headrace.loader import Loader
from headrace.observe.lineage import feed_of, inline, read_epoch, rerun
from headrace.observe.meter import Meter
from headrace.observe.quarantine import About, QuarantinedSample, read
from headrace.plan.share import Payload
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
        with subject.loader(workers=0, world=World(rank=about.rank, ranks=about.ranks)) as of_rank:
            yield from _run(of_rank, entries)
    if not any(fitting.values()):
        yield Proof("quarantine", None, f"{file} names no samples")


def _run(loader: Loader[Any], entries: list[QuarantinedSample]) -> Iterator[Proof]:
    program = replace(loader.program, skips=True)
    for epoch in sorted({entry.epoch for entry in entries}):
        of_epoch = [entry for entry in entries if entry.epoch == epoch]
        meter = Meter()
        if program.traceable:
            for number, payload in sorted(set(_tickets(program, loader, epoch, of_epoch))):
                meter.skips += rerun(program, epoch, number, payload)[0].skipped
        else:
            policy = replace(inline(loader.policy), on_error="skip")
            for _ in read_epoch(program, policy, epoch, loader.world, loader.ends, meter=meter):
                pass
        failures = {(position, op, index): error for position, op, error, index, _ in meter.skips}
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


def _tickets(
    program: Program, loader: Loader[Any], epoch: int, entries: list[QuarantinedSample]
) -> Iterator[tuple[int, Payload]]:
    """The number and the payload of the ticket that each sample belongs to."""
    ranks = loader.world.share_ranks
    feed = feed_of(program, loader.policy, epoch, loader.world, loader.ends)
    for entry in entries:
        if isinstance(feed, Items):
            if entry.position not in feed.positions:  # the dataset has become shorter
                continue
            feed.seek(feed.positions.index(entry.position))
        # Ops on whole batches have no position of a sample: they are known by the number of their batch.
        elif any(node.op.describe() == entry.op for node in program.stages[0].nodes):
            feed.seek(entry.position // ranks)
        else:
            feed.seek(feed.share.at(entry.position)[0])
        ticket = feed.next(None)
        assert ticket is not None
        yield ticket.number, ticket.payload


def _judge(entry: QuarantinedSample, failures: Failures) -> Proof:
    name = f"position {entry.position}"
    error = failures.get((entry.position, entry.op, entry.index))
    if error is None:
        return Proof(name, False, f"does not fail any more in {entry.op} (it was {entry.error}); was it repaired?")
    if error != entry.error:
        return Proof(name, False, f"fails in {entry.op} with {error} instead of {entry.error}")
    return Proof(name, True, f"fails again in {entry.op}: {error}")
