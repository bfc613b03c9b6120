"""The pipes whose snapshots are kept for ever. Never change one: add another."""

from typing import Any

from headrace import Pipe
from tests.laws.pipes import Numbers, double, keyed, odd, some, stream

PIPES: dict[str, Pipe[Any]] = {
    "indexed": Pipe.of(Numbers(101)).shuffle().map(keyed).batch(8),
    "large": Pipe.of(Numbers(10**12)).shuffle().header(10**6).map(double).batch(64),
    "windowed": Pipe.of(Numbers(101)).shuffle(window=10).map(keyed),
    "filtered": Pipe.of(Numbers(101)).shuffle().map(keyed).filter(odd).batch(8),
    "spread": Pipe.of(Numbers(101)).flatmap(some).map(keyed).batch(5).unbatch().batch(3),
    "streamed": Pipe.of(stream(101)).shuffle(window=10).sharding_filter().map(keyed).batch(4),
    "buffered": Pipe.of(stream(101)).shuffle(buffer_size=10).sharding_filter().map(keyed).batch(4),
    "branched": Pipe.of(stream(40)).mix(Pipe.of(Numbers(50)), weights=(2, 1)).zip(Pipe.of(Numbers(70))).batch(4),
    "cycled": Pipe.of(Numbers(30)).shuffle().cycle(3).batch(7, drop_last=True),
    "tailed": Pipe.of(stream(101)).sharding_filter().map(keyed).batch(4).enumerate().header(20),
}
