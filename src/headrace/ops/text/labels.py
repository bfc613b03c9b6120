"""Labels: packed rows as trainers take them. The token behind the last one of a document is never a label.

    shifted(row)        input and labels of one length: token i predicts token i + 1 of the same document; torchtitan
    flattened(rows)     one row of all documents, for models that shift inside: the first token of each document is no
                        label; transformers and TRL without padding

-100 is the label that a loss leaves out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

IGNORED = -100


def shifted(row: dict[str, Any]) -> dict[str, Any]:
    """`input`, `positions` and `labels` of a padded row. Packed with `overlap=1`, a row loses no label at its end."""
    tokens, documents, positions = row["tokens"], row["documents"], row["positions"]
    labels = np.full(len(tokens), IGNORED, np.int64)
    follows = (documents[1:] == documents[:-1]) & (documents[1:] > 0)
    labels[:-1][follows] = tokens[1:][follows]
    return {"input": tokens.astype(np.int64), "positions": positions.astype(np.int64), "labels": labels}


def flattened(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Flat rows, end to end, as attention without padding takes them: one batch of one row, and no attention mask (one
    of ones would make attention cross documents)."""
    tokens = np.concatenate([row["tokens"] for row in rows]).astype(np.int64)
    positions = np.concatenate([row["positions"] for row in rows]).astype(np.int64)
    lengths = np.concatenate([np.diff(row["cu_seqlens"]) for row in rows])
    ends = np.cumsum([0, *lengths], dtype=np.int32)
    labels = tokens.copy()
    labels[ends[:-1]] = IGNORED
    longest = int(lengths.max()) if len(lengths) else 0
    return {
        "input_ids": tokens[None], "labels": labels[None], "position_ids": positions[None],
        "cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest,
    }  # fmt: skip
