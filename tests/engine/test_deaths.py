"""What deaths are held against: a sample that has ended its worker twice, and never one that has survived since."""

import pytest

from headrace.engine.wire.messages import Ticket
from headrace.engine.workers.deaths import STREAM_DEATHS, DeathPlace, Deaths
from headrace.errors import PoisonSample


def ticket(number: int = 3, strand: int | None = None) -> Ticket:
    made = Ticket(None, 0, 0, number, (12, 16, ()))
    made.strand = strand
    return made


def test_two_deaths_at_one_sample_of_one_ticket_make_it_poison() -> None:
    deaths = Deaths("raise")
    deaths.blame(ticket(), DeathPlace(13, False), "died")
    deaths.blame(ticket(), DeathPlace(14, False), "died")
    deaths.blame(ticket(4), DeathPlace(16, False), "died")
    with pytest.raises(PoisonSample, match="position 13"):
        deaths.blame(ticket(), DeathPlace(13, False), "died")


def test_a_sample_whose_ticket_was_answered_is_no_poison_however_often_its_worker_is_killed() -> None:
    deaths = Deaths("raise")
    for _ in range(10):
        deaths.blame(ticket(), DeathPlace(13, False), "was killed")
        assert deaths.watched(ticket())
        deaths.survived(ticket())
        assert not deaths.watched(ticket())
    for _ in range(10 * STREAM_DEATHS):
        deaths.blame(ticket(strand=0), DeathPlace(13, False), "was killed")
        deaths.survived(ticket(strand=0))


def test_a_batch_that_is_left_out_is_left_out_whole() -> None:
    deaths, struck = Deaths("skip"), ticket()
    for _ in range(2):
        deaths.blame(struck, DeathPlace(15, False, grouped=True), "died")
    assert struck.avoid == (12, 13, 14, 15)
