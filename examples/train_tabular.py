"""Tabular training from Parquet: shuffled batches of columns as tensors, and no row is touched by Python.

    python examples/train_tabular.py

Writes Parquet files, reads only the columns that it needs and the rows that pass a filter, in a new order each epoch,
and fits a line to them. Needs `headrace[torch,arrow]`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from headrace import Loader, Pipe

ROWS = 40_000


def make(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for part in range(4):
        area, age = draw.uniform(20, 200, ROWS // 4), draw.uniform(0, 100, ROWS // 4)
        table = {
            "area": area.astype(np.float32),
            "age": age.astype(np.float32),
            "price": (3 * area - 0.5 * age + draw.normal(0, 5, ROWS // 4)).astype(np.float32),
            "sold": draw.random(ROWS // 4) < 0.9,
            "remarks": ["none of our business"] * (ROWS // 4),
        }
        pq.write_table(pa.table(table), folder / f"part{part}.parquet", row_group_size=1000)


def scaled(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Whole columns at once, in the workers."""
    return {name: values / 100 for name, values in columns.items()}


def main(folder: Path) -> None:
    make(folder)
    rows = Pipe.parquet(str(folder / "*.parquet")).filter(pc.field("sold")).select("area", "age", "price")
    pipe = rows.shuffle().map(scaled, batched=True).batch(512, as_="torch")
    print(f"{len(rows):,} of {ROWS:,} rows pass the filter")

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with Loader(pipe, workers=2, kind="thread", seed=7) as loader:
        for epoch in range(5):
            count = 0
            for batch in loader:
                inputs = torch.stack([batch["area"], batch["age"]], 1)
                loss = torch.nn.functional.mse_loss(model(inputs)[:, 0], batch["price"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                count += len(inputs)
            assert count == len(rows)
            print(f"epoch {epoch}: {count:,} rows, error {100 * loss.item() ** 0.5:.1f}")
    area, age = model.weight[0].tolist()
    print(f"price = {area:.1f} x area {age:+.1f} x age: it was made as 3.0 and -0.5")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
