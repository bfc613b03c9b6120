"""WebDataset in torch's DataLoader, batched in the workers, as its documentation has it."""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from benchmarks.subjects.torch_loader import Running
from benchmarks.tarfiles import Decode, FromDict


class WebDataset:
    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Any:
        data = webdataset.WebDataset(list(paths), shardshuffle=False).map(FromDict(decode)).batched(size)
        loader: Any = DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=True)
        return closing(Running(loader))


SUBJECT = WebDataset()
