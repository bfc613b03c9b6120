"""Through PopTorch's door: one loader for the processes of a job and the replicas in each.

    python examples/doors/replicas.py
    headrace run --num-replicas 4 --num-instances 2 python examples/doors/replicas.py

Started by itself it is a job of one process with two replicas. Under `headrace run` each process gets its own part of
the data, and in one `next()` everything that its replicas need for a step.
"""

import sys

sys.path.pop(0)  # this folder has a file torch.py: whoever imports torch shall find the package

import numpy as np

from headrace import World
from headrace.replicas import popdist, poptorch, split

# was: import popdist, popdist.poptorch, poptorch


class Numbers:
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[np.float32, int]:
        return np.float32(index / 1000), index


def main() -> None:
    launched = World.detect().ranks > 1
    options = popdist.poptorch.Options() if launched else poptorch.Options().replicationFactor(2)
    options.randomSeed(42)
    options.deviceIterations(2)

    loader = poptorch.DataLoader(options, Numbers(), batch_size=5, shuffle=True, num_workers=2, drop_last=True)
    seen: list[int] = []
    for values, indices in loader:
        assert len(values) == loader.combinedBatchSize == 5 * 2 * options.replication_factor
        for micro_batches in split(indices, options):  # one list for each replica
            for micro_batch in micro_batches:
                seen += micro_batch.tolist()
    loader.terminate()

    assert len(seen) == len(set(seen))
    print(f"{len(loader)} steps of {loader.combinedBatchSize} samples, {len(seen)} different samples in this process")


if __name__ == "__main__":
    main()
