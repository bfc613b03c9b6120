"""The worker behind a Ray actor, without Ray: what it says, what it keeps, and what it can make once more."""

import threading
from typing import Any

import numpy as np
import pytest

from headrace import Pipe
from headrace.engine.policy import Policy
from headrace.engine.program import cut
from headrace.engine.wire import codec
from headrace.engine.wire.failures import load_error
from headrace.engine.wire.messages import FAILED, READY, RESULT, Reply, Ticket
from headrace.engine.wire.shipping import ship
from headrace.engine.workers.deaths import DeathPlace, Deaths
from headrace.engine.workers.ray.actors import MOST_TOGETHER, ActorCall, ActorState, Scheduler
from headrace.engine.workers.ray.answers import RayAnswer, RayTicket, reply_of
from headrace.engine.workers.ray.same_node import KEPT, MappedSlots, slot_address
from headrace.engine.workers.ray.worker import RayWorker
from headrace.engine.workers.remote import StrandStates
from headrace.errors import NotPicklable, PoisonSample
from headrace.memory.arena import Arena
from tests.laws.pipes import Numbers, double, drawn, stream


def worker_of(pipe: Pipe[Any], told: list[Any] | None = None, **extra: Any) -> RayWorker:
    options = {"worker_init": None, "recycle": None, "recycle_memory": None, **extra}
    made = RayWorker(lambda _, *where: told.append(where) if told is not None else None)
    assert made.start(ship(cut(pipe, 3), options)[0], 0)[0] == READY
    return made


def ticket(stage: int, number: int, payload: Any, watcher: Any = None, avoid: Any = ()) -> RayTicket:
    return RayTicket(1, stage, 0, number, payload, avoid, watcher)


def opened(answer: RayAnswer) -> Any:
    """What a large result holds, out of the memory beside it."""
    spans = answer.result.spans  # type: ignore[union-attr]
    parts = [memoryview(answer.image)[at : at + n] for at, n in zip(spans[::2], spans[1::2], strict=True)]
    return codec.load(answer.result.head, parts)  # type: ignore[union-attr]


def arrays(i: int) -> Any:
    return np.full(1000, i)


# --- replies ----------------------------------------------------------------------------------------------------------


def test_a_small_result_is_inline_and_a_large_one_has_its_memory_beside_it() -> None:
    [small], _ = worker_of(Pipe.of(Numbers(8)).batch(4)).deliver([ticket(0, 0, (0, 4, ()))], ())
    assert (small.kind, small.result.size, small.image, small.result.outputs) == (RESULT, 0, None, 1)
    assert codec.load(small.result.head, ()) == [0, 1, 2, 3]
    [large], _ = worker_of(Pipe.of(Numbers(8)).map(arrays).batch(4).collate()).deliver([ticket(0, 0, (0, 4, ()))], ())
    assert large.result.size == large.image.nbytes > 0
    assert (opened(large) == np.arange(4)[:, None]).all()


def test_samples_that_stay_are_read_by_the_next_stage_and_never_written_to() -> None:
    def shift(batch: list[Any]) -> list[Any]:
        for array in batch:
            array += 10
        return batch

    made = worker_of(Pipe.of(Numbers(8)).map(arrays).filter(lambda a: a[0] % 2 == 0).batch(2).map(shift))
    (reply, _), packed = made.keep(ticket(0, 0, (0, 8, ())), ())
    assert (reply.kind, reply.result.outputs, reply.image) == (RESULT, 4, None)
    packed[1].flags.writeable = False
    for _ in range(2):  # a ticket that runs again after a death finds its samples as they were
        [answer], _ = made.deliver([ticket(1, 0, ([(0, 1, 3)], 0, 1))], [packed])
        assert [array[0] for array in opened(answer)] == [12, 14]


def test_an_error_is_said_and_reaches_whoever_needs_the_samples() -> None:
    made = worker_of(Pipe.of(Numbers(8)).map(lambda x: threading.Lock()).filter(bool).batch(2).map(double))
    (reply, _), packed = made.keep(ticket(0, 0, (0, 4, ())), ())
    assert reply.kind == FAILED
    assert packed is reply.result
    [answer], _ = made.deliver([ticket(1, 0, ([(0, 0, 2)], 0, 1))], [packed])
    error = load_error(answer.result.error)
    assert isinstance(error, NotPicklable)
    assert "made again" in "".join(error.__notes__)


def test_an_error_of_one_sample_is_said_beside_the_others() -> None:
    made = worker_of(Pipe.of(Numbers(8)).map(lambda x: 1 // (x - 2)).filter(bool).batch(2).map(double))
    (reply, _), _packed = made.keep(ticket(0, 0, (0, 4, ())), ())
    assert (reply.kind, reply.result.outputs) == (RESULT, 3)
    [(before, position, error)] = reply.result.faults
    assert (before, position) == (2, 2)
    assert isinstance(load_error(error[0]), ZeroDivisionError)


def test_a_watched_ticket_tells_each_position_beforehand_and_when_it_is_packed() -> None:
    told: list[Any] = []
    made = worker_of(Pipe.of(Numbers(8)).batch(4), told)
    made.deliver([ticket(0, 0, (0, 4, ()), watcher="somebody", avoid=(2,))], ())
    assert told == [(1, 0, False), (1, 1, False), (1, 3, False), (1, 3, True)]


def test_a_worker_that_has_done_enough_asks_to_be_replaced() -> None:
    made = worker_of(Pipe.of(Numbers(8)).batch(4), recycle=3)
    both = [ticket(0, 0, (0, 4, ())), ticket(0, 1, (4, 8, ()))]
    assert [made.deliver(both, ())[1] for _ in range(2)] == [False, True]


# --- slots that are near ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "fits"), [(4, True), (40, False)])
def test_a_result_is_made_in_the_slot_that_was_lent_if_it_fits(count: int, fits: bool) -> None:
    arena, made = Arena(1 << 20), worker_of(Pipe.of(Numbers(80)).map(arrays).batch(count).collate())
    given = Ticket(None, 0, 0, 0, None)
    given.slot = slot = arena.lend(40_000)
    [said], _ = made.deliver([ticket(0, 0, (0, count, ()))], (), [slot_address(slot)])
    assert (said.result.size > 0, said.image is None) == (True, fits)
    reply, missed = reply_of(given, 0, said, arena)
    assert reply.slot is not None
    assert (reply.slot is slot, given.slot, missed) == (fits, None, False)
    parts = [reply.slot.view[at : at + n] for at, n in zip(reply.spans[::2], reply.spans[1::2], strict=True)]
    assert (codec.load(reply.outputs, parts) == np.arange(count)[:, None]).all()


def test_a_slot_out_of_reach_is_noticed_and_the_result_comes_all_the_same() -> None:
    arena, made = Arena(1 << 20), worker_of(Pipe.of(Numbers(8)).map(arrays).batch(4).collate())
    given = Ticket(None, 0, 0, 0, None)
    given.slot = slot = arena.lend(40_000)
    number, path, device, inode = slot_address(slot)
    for wrong in ((number, path, device, inode + 1), (number, "/proc/1/fd/12345", device, inode)):
        [said], _ = made.deliver([ticket(0, 0, (0, 4, ()))], (), [wrong])
        assert (said.result.size > 0, said.image is None) == (True, False)
    assert (opened(said) == np.arange(4)[:, None]).all()
    assert not any(slot.view)
    _, missed = reply_of(given, 0, said, arena)
    assert missed


def test_only_so_many_slots_stay_mapped() -> None:
    arena, nearby = Arena(1 << 30), MappedSlots()
    slots = [arena.lend(1) for _ in range(KEPT + 3)]
    for slot in slots:
        assert nearby.find(slot_address(slot)) is not None
    assert list(nearby._mapped) == [slot.number for slot in slots[3:]]


# --- lost and made again ----------------------------------------------------------------------------------------------


def unpacked(packed: Any) -> list[Any]:
    (offset, size), image = packed
    memory = memoryview(image)
    table = codec.read_table(memory, offset, size)
    return codec.load_many(memory, table, 0, len(table[1]))


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_lost_block_of_a_strand_is_made_again_and_the_open_strand_goes_on(start: int) -> None:
    made = worker_of(Pipe.of(stream(2000)).shuffle(buffer_size=20).map(drawn).shuffle(buffer_size=5))
    states, blocks, counts = [None], [], []
    for number in range(start + 1):
        (reply, _), packed = made.keep(ticket(0, number, (0, states[-1] if not number else None)), ())
        states.append(reply.result.strand[1])
        counts.append(reply.result.outputs)
        blocks.append(unpacked(packed))
    # Fewer samples than a block would take now: how many there were depended on time.
    less = counts[start] - 7
    again = made.remake(ticket(0, start, (0, states[start])), less)
    assert unpacked(again) == blocks[start][:less]
    (reply, _), packed = made.keep(ticket(0, start + 1, (0, None)), ())
    fresh = worker_of(Pipe.of(stream(2000)).shuffle(buffer_size=20).map(drawn).shuffle(buffer_size=5))
    assert unpacked(packed) == unpacked(fresh.remake(ticket(0, start + 1, (0, states[-1])), reply.result.outputs))


def test_a_strand_opens_from_its_own_state_before_that_of_another_run() -> None:
    states = StrandStates()
    states.note(Ticket(None, 0, 0, 4, (1, None)), b"after block 4")
    assert states.payload(Ticket(None, 0, 0, 5, (1, None))) == (1, b"after block 4")
    assert states.payload(Ticket(None, 0, 0, 6, (1, None))) == (1, None)
    assert states.payload(Ticket(None, 0, 0, 5, (1, b"resumed"))) == (1, b"resumed")
    assert states.payload(Ticket(None, 0, 1, 5, (1, None))) == (1, None)


# --- who is to blame --------------------------------------------------------------------------------------------------


def test_two_deaths_at_the_same_sample_make_it_poison_and_the_first_of_a_ticket_never_counts() -> None:
    deaths, one = Deaths("raise"), Ticket(None, 0, 0, 7, (0, 4, ()))
    assert not deaths.watched(one)
    deaths.blame(one, None, "was killed")
    assert deaths.watched(one)
    deaths.blame(one, DeathPlace(13, False), "was killed")
    deaths.blame(one, DeathPlace(12, False), "was killed")
    with pytest.raises(PoisonSample, match="position 13 ended its worker twice: it was killed"):
        deaths.blame(one, DeathPlace(13, False), "was killed")


def test_poison_is_left_out_where_that_is_asked_for() -> None:
    deaths, one = Deaths("skip"), Ticket(None, 0, 0, 7, (0, 4, ()))
    for _ in range(2):
        deaths.blame(one, DeathPlace(13, False), "was killed")
    assert one.avoid == (13,)


# --- who gets what ----------------------------------------------------------------------------------------------------


def ready(number: int, scheduler: Scheduler) -> ActorState:
    worker = ActorState(number)
    worker.ready = True
    scheduler.join(worker)
    return worker


def test_the_least_busy_worker_is_chosen_and_none_that_is_full() -> None:
    scheduler = Scheduler(Policy(workers=2, kind="ray"))
    one, two = ready(0, scheduler), ready(1, scheduler)
    some = Ticket(None, 0, 0, 0, (0, 4, ()))
    one.outbox = [some]
    assert scheduler.choose(some, alone=False) is two
    one.outbox = two.outbox = [some, some]
    assert scheduler.choose(some, alone=False) is None
    one.outbox, some.pin = [], 3
    assert scheduler.choose(some, alone=False) is None
    two.outbox, two.calls = [], {0: ActorCall(two, 0, [some])}
    assert scheduler.choose(some, alone=False) is two


def test_short_tickets_wait_for_each_other_unless_the_worker_would_run_out() -> None:
    scheduler = Scheduler(Policy(workers=1, kind="ray"))
    worker, some = ready(0, scheduler), Ticket(None, 0, 0, 0, (0, 4, ()))
    assert scheduler.together(0) == 1
    for seconds, together in ((0.1, 1), (0.0, MOST_TOGETHER)):
        for _ in range(100):
            reply = Reply(some)
            reply.seconds = (seconds, None)
            scheduler.learn(reply)
        assert scheduler.together(0) == together
    worker.outbox = [some]
    assert scheduler.due(worker)
    worker.calls = {k: ActorCall(worker, k, [some]) for k in range(2)}
    assert not scheduler.due(worker)
    worker.outbox = [some] * MOST_TOGETHER
    assert scheduler.due(worker)


def test_blocks_of_a_strand_are_taken_in_order_whenever_they_arrive() -> None:
    worker, calls = ActorState(0), []
    for number, strand in enumerate((0, 1, 0)):
        some = Ticket(None, 0, 0, number, (strand, None))
        some.strand = strand
        calls.append(ActorCall(worker, number, [some]))
        worker.calls[number] = calls[-1]
    assert [call.in_turn for call in calls] == [True, True, False]
    del worker.calls[0]
    assert calls[2].in_turn


# --- memory of results that are in no slot ----------------------------------------------------------------------------


def test_batches_that_an_op_keeps_for_itself_stay_as_they_were() -> None:
    kept: list[Any] = []
    made = worker_of(Pipe.of(Numbers(40)).map(arrays).batch(4).collate())
    for number in range(10):
        [answer], _ = made.deliver([ticket(0, number, (4 * number, 4 * number + 4, ()))], ())
        kept.append(opened(answer))
    assert all((batch == np.arange(4 * k, 4 * k + 4)[:, None]).all() for k, batch in enumerate(kept))
