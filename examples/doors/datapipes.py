"""Through TorchData's door: DataPipes and DataLoader2, with the imports changed.

    python examples/doors/datapipes.py

Reads CSV files through a graph of operators with two worker processes, over two epochs, and shows that the batches are
the same without workers.
"""

import csv
import sys
import tempfile
from pathlib import Path

sys.path.pop(0)  # this folder has a file torch.py: whoever imports torch shall find the package

from headrace import DataLoader2, MultiProcessingReadingService
from headrace.datapipes.iter import FileLister, IterDataPipe

# was: from torchdata.dataloader2 import ...  and  from torchdata.datapipes.iter import ...

Row = tuple[int, float]


def make(folder: Path) -> None:
    for number in range(3):
        with open(folder / f"part{number}.csv", "w", newline="") as file:
            csv.writer(file).writerows([i, i / 2] for i in range(100 * number, 100 * number + 100))


def parse(row: list[str]) -> Row:
    return int(row[0]), float(row[1])


def graph(folder: Path) -> IterDataPipe[list[Row]]:
    pipe = FileLister(str(folder), "*.csv").open_files(encoding="utf-8").parse_csv()
    return pipe.shuffle().sharding_filter().map(parse).batch(16)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        service = MultiProcessingReadingService(num_workers=2)
        loader = DataLoader2(graph(Path(folder)), reading_service=service)
        loader.seed(7)
        epochs = [list(loader), list(loader)]
        loader.shutdown()

        for number, batches in enumerate(epochs):
            rows = [row for batch in batches for row in batch]
            assert len(rows) == len(set(rows)) == 300
            print(f"epoch {number}: {len(batches)} batches, every row once, first {rows[0]}")
        assert epochs[0] != epochs[1]

        alone = DataLoader2(graph(Path(folder)))
        alone.seed(7)
        assert [list(alone), list(alone)] == epochs
        alone.shutdown()
        print("the same batches without workers")


if __name__ == "__main__":
    main()
