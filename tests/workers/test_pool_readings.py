"""Who shares a reading of a stream with whom, and under which numbers the workers know its blocks."""

from typing import Any

from headrace.engine.wire import codec
from headrace.engine.wire.messages import Reply, Ticket
from headrace.engine.workers.shared.accounts import ConsumerState
from headrace.engine.workers.shared.readings import FRESH, LOST, StreamReading, StreamReadings


def always(reading: StreamReading, strand: int, number: int) -> bool:
    return True


def never(reading: StreamReading, strand: int, number: int) -> bool:
    return False


def answer(state: Any, ended: bool = False) -> Reply:
    reply = Reply(Ticket(None, 0, 0, 0, None))
    reply.state, reply.ended = codec.pack_state(state), ended
    return reply


A, B = ConsumerState(1), ConsumerState(2)


def test_consumers_that_begin_together_share_a_reading() -> None:
    readings = StreamReadings(1, same=False)
    first = readings.of(A, 0, 0, FRESH, never)
    assert readings.of(B, 0, 0, FRESH, never) is first  # its first block is still to be asked for
    assert readings.of(A, 0, 0, (1, None), never) is first


def test_whoever_comes_when_the_first_block_is_gone_reads_alone() -> None:
    readings = StreamReadings(1, same=True)
    first = readings.of(A, 0, 0, FRESH, never)
    first.next[0] = 5
    second = readings.of(B, 0, 0, FRESH, never)
    assert second is not first
    assert second.private
    assert 0 in B.apart
    B.apart.clear()


def test_a_reading_is_joined_at_the_same_place_only() -> None:
    readings = StreamReadings(1, same=False)
    first = readings.of(A, 0, 0, (7, b"here"), always)
    assert readings.of(B, 0, 0, (7, b"there"), always) is not first
    readings.forget(B)
    assert readings.of(B, 0, 0, (7, b"here"), always) is first


def test_nobody_takes_the_place_of_one_that_has_left() -> None:
    # What it had may have been written to.
    readings = StreamReadings(1, same=False)
    first = readings.of(A, 0, 0, FRESH, always)
    readings.of(B, 0, 0, FRESH, always)
    readings.forget(B)
    assert readings.of(ConsumerState(3), 0, 0, FRESH, always) is not first


def test_the_same_epoch_again_is_another_reading() -> None:
    readings = StreamReadings(2, same=False)
    first = readings.of(A, 0, 0, FRESH, always)
    assert readings.of(A, 0, 1, FRESH, always) is first
    again = readings.of(A, 0, 0, FRESH, always)
    assert again is not first
    assert readings.of(A, 0, 1, FRESH, always) is again


def test_blocks_of_two_readings_never_have_the_same_number() -> None:
    readings = StreamReadings(1, same=False)
    one = readings.of(A, 0, 0, FRESH, never)
    one.next[0] = 1
    two = readings.of(B, 0, 0, FRESH, never)
    numbers = [reading.ticket(0, number)[0] for reading in (one, two) for number in range(5)]
    # (After a block the worker has the next number open: that must not be anybody else's either.)
    numbers += [number + 1 for number in (numbers[4], numbers[5], numbers[9])]
    assert len(set(numbers)) == len(numbers)
    # A worker that is told no state opens the strand at its start only under a number that is not above zero.
    assert [number <= 0 for number in numbers[:10]] == ([True] + [False] * 4) * 2


def test_a_worker_that_has_lost_the_strand_is_asked_again_with_its_state() -> None:
    reading = StreamReadings(1, same=False).of(A, 0, 0, FRESH, never)
    assert reading.ticket(0, 0)[2] == (0, None)
    reading.in_flight[0] += 1
    assert reading.heard(0, 0, answer([3]))
    reading.in_flight[0] += 2
    assert reading.ticket(0, 1)[2] == (0, None)  # another one is under way: its worker will know
    assert not reading.heard(0, 1, answer(None))
    assert not reading.heard(0, 2, answer(None))
    assert reading.ticket(0, 1)[2] == (0, codec.pack_state([3]))
    assert codec.unpack_state(LOST) is None


def test_after_the_end_nothing_is_lost() -> None:
    reading = StreamReadings(1, same=False).of(A, 0, 0, FRESH, never)
    reading.in_flight[0] += 2
    assert reading.heard(0, 0, answer([9], ended=True))
    assert reading.heard(0, 1, answer(None))
    assert reading.last == {0: 0}
