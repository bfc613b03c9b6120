"""Through SwiftLoader's door: one dataset, shared by the consumers of a machine.

    python examples/doors/swift.py

Two consumers (in a real job, one process for each GPU) make the same loader and start it with their own index. Each has
workers of its own, which build the dataset from its class; together they read every sample once.
"""

import sys

sys.path.pop(0)  # this folder has a file torch.py: whoever imports torch shall find the package

import numpy as np

from headrace import SwiftLoader  # was: from swift_loader import SwiftLoader


class Pictures:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"index": index, "image": np.full((8, 8), index % 256, np.uint8)}


def consume(consumer: int) -> list[int]:
    with SwiftLoader(
        dataset_class=Pictures,
        dataset_kwargs={"size": 200},
        batch_size=16,
        nb_consumer=2,
        worker_per_consumer=1,
        shuffle=True,
        seed=7,
    ) as loader:
        loader.start(consumer_index=consumer)
        return [index for batch in loader for index in np.asarray(batch["index"]).tolist()]


def main() -> None:
    shares = [consume(0), consume(1)]
    for consumer, share in enumerate(shares):
        print(f"consumer {consumer}: {len(share)} samples, the first are {share[:4]}")
    assert sorted(shares[0] + shares[1]) == list(range(200))
    print("together every sample once")


if __name__ == "__main__":
    main()
