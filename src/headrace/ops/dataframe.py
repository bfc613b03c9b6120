"""Data frames: a batch of rows as one pandas DataFrame."""

from dataclasses import dataclass
from typing import Any

from headrace.op import Each


@dataclass(frozen=True, slots=True)
class ToDataFrame(Each[list[Any], Any]):
    """The rows of a batch as a DataFrame with these column names."""

    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        from headrace.sources.extra import demand

        demand("arrow", "pandas")

    def apply(self, sample: list[Any]) -> Any:
        from headrace.sources.extra import need

        rows = [row if isinstance(row, dict | list | tuple) else (row,) for row in sample]
        return need("arrow", "pandas").DataFrame(rows, columns=None if self.columns is None else list(self.columns))

    @classmethod
    def name(cls) -> str:
        return "dataframe"
