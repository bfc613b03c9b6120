"""Seeds of DataLoader2.

The order of an epoch is a function of the seed and of how many epochs have run since it was set. Both together are one
number, the *epoch number* that the loader gets: `seed(5)` gives the same epoch in any run, at any time in that run.
"""

from headrace.doors.torch.datapipes import drawn_seed
from headrace.errors import BadOption
from headrace.plan.seed import key

EPOCH_BITS = 20
"""Bits of an epoch number that count the epochs since the seed was set."""
SEED_BITS = 42
"""Seeds of up to this many bits are used as they are, so that epoch numbers can be read; larger ones are hashed."""


def check_seed(seed: object) -> int:
    """The seed, if it is a whole number of 64 bits."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise BadOption(f"Expected an uint64 seed, but got {seed}.")
    return int(seed)


def epoch_number(seed: int) -> int:
    """The number of the first epoch after a seed was set; those of two seeds are `2**EPOCH_BITS` apart or more."""
    many = 1 << SEED_BITS
    high = seed if seed < many else many + key(seed, "seed") % many
    return high << EPOCH_BITS


class SeedGenerator:
    """Draws seeds from two sequences: one that all processes share, and one of each process's own."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed(seed)

    def seed(self, seed: int | None = None) -> None:
        """Start both sequences again."""
        self._seed = (drawn_seed() or 0) if seed is None else check_seed(seed)
        self._path: tuple[int, ...] = ()
        self._shared_drawn = self._own_drawn = 0

    def generate_shared_seed(self) -> int:
        """The next seed of the sequence that is the same in all processes."""
        self._shared_drawn += 1
        return key(self._seed, "shared", self._shared_drawn)

    def generate_seed(self) -> int:
        """The next seed of this process's own sequence."""
        self._own_drawn += 1
        return key(self._seed, "own", *self._path, self._own_drawn)

    def spawn(self, worker_id: int, inplace: bool = False) -> "SeedGenerator":
        """The generator of a worker: the shared sequence goes on, its own one is new."""
        if worker_id < 0:
            raise BadOption(f"Expected `rank` equal or larger than 0, but got {worker_id}.")
        spawned = self if inplace else SeedGenerator(self._seed)
        spawned._path, spawned._own_drawn, spawned._shared_drawn = (*self._path, worker_id), 0, self._shared_drawn
        return spawned
