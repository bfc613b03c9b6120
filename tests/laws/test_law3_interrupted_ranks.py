"""Law 3 after Ctrl-C on one rank of several: where it says that the job stands, all ranks can go on.

Ranks that exchange counts are threads of this process, and only one of them is interrupted. Its snapshot stands after
the last step that it received: what ranks have delivered up to that step, and what they deliver from there, is
everything.
"""

import json
import random
from typing import Any

import pytest

from headrace import Loader, Pipe, World
from tests.depth import depth
from tests.laws.moments import Interrupt, Moment, moments_of, read_until
from tests.laws.pipes import Numbers, keyed, odd, shown, some, stream
from tests.ranks.test_dynamic import SHAPES, Job
from tests.ranks.together import together

RANKS = 2


def third(x: int) -> bool:
    return x % 3 == 1


COUNTED: dict[str, Pipe[Any]] = {
    "filtered": Pipe.of(Numbers(70)).shuffle().filter(odd).map(keyed).batch(2),
    "flattened samples": Pipe.of(Numbers(50)).flatmap(some).map(keyed),
    "dealt among ranks": Pipe.of(Numbers(64)).filter(lambda x: x % 2 == 0 or x > 50).batch(2),
    "filtered stream": Pipe.of(stream(60)).filter(third).batch(2),
    "ops in the consumer": Pipe.of(Numbers(60)).filter(third).sharding_filter().batch(2).enumerate(),
}


def counted(name: str, monkeypatch: pytest.MonkeyPatch, state: str | None, moment: Moment | None) -> list[Any]:
    """What each rank delivers, and where rank 0 stands in the end. Others end when it does."""

    def rank(world: World) -> tuple[list[str], str]:
        got: list[str] = []
        loader: Loader[Any] = Loader(COUNTED[name], seed=3, world=world)
        try:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            if moment is not None and world.rank == 0:
                read_until(moment, iter(loader), got)
            else:
                got.extend(shown(sample) for sample in loader)
        except (KeyboardInterrupt, Interrupt):
            pass
        except RuntimeError as left:
            assert "another rank" in str(left)  # noqa: PT017
        told = json.dumps(loader.state_dict())
        loader.close()
        return got, told

    return together(RANKS, rank, monkeypatch)


# (An interrupt inside Thread.start() makes CPython itself report a thread that nobody has listed; rounds begin again.)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(depth(90, 3000))
@pytest.mark.parametrize("name", list(COUNTED))
def test_a_rank_that_exchanges_counts_may_be_interrupted_at_any_moment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Moment(float("inf"), Interrupt())
    whole = [got for got, _ in counted(name, monkeypatch, None, counter)]
    chance = random.Random(name)
    for _ in range(depth(4, 120)):
        error = chance.choice([KeyboardInterrupt(), Interrupt()])
        moment = Moment(chance.randrange(counter.seen), error)
        (mine, state), (others, _) = counted(name, monkeypatch, None, moment)
        assert others[: len(mine)] == whole[1][: len(mine)]
        if json.loads(state)["epoch"] == 1:
            assert mine == whole[0]
            continue
        rest = [got for got, _ in counted(name, monkeypatch, state, None)]
        assert [mine + rest[0], others[: len(mine)] + rest[1]] == whole, (len(mine), moment.seen)


@pytest.mark.timeout(depth(90, 3000))
@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_rank_that_takes_blocks_from_a_counter_may_be_interrupted_at_any_moment(shape: str) -> None:
    pipe = SHAPES[shape]()
    whole = sorted(shown(sample) for sample in flattened(Loader(pipe, seed=5)))
    job = Job(pipe, 1)
    moments, _ = moments_of(job.epochs[0])
    job.close()
    chance = random.Random(shape)
    for _ in range(depth(2, 120)):
        moment = Moment(chance.randrange(moments), chance.choice([KeyboardInterrupt(), Interrupt()]))
        job, got = Job(pipe, RANKS), []
        for _ in range(chance.randrange(9)):
            got += flattened([next(job.epochs[1])])
        while True:
            try:
                got += flattened([moment.of(lambda epoch=job.epochs[0]: next(epoch))])
            except StopIteration:
                break
            except (KeyboardInterrupt, Interrupt):
                break
        states = [loader.state_dict() for loader in job.loaders]
        places = [state["at"] and state["at"]["place"] for state in states]
        assert places[0] == places[1], "the others know what was received"
        job.close()
        if states[0]["epoch"] == 1:
            assert sorted(shown(sample) for sample in got) == whole
            continue
        then = Job(pipe, 1, states[chance.randrange(RANKS)])
        got += flattened(then.read()[0])
        then.close()
        assert sorted(shown(sample) for sample in got) == whole, (len(got), moment.seen)


def flattened(samples: Any) -> list[Any]:
    return [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]
