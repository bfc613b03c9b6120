"""Who is measured: every subject with its environment, what it can be asked for, and why not for the rest.

Data only, so that a report can speak of a subject that is not installed. `takes` names methods of `case.Subject`;
`lacks` says why a method, or one case, is missing. A name with a dot is a module of one's own and takes everything; a
subject that is not listed here takes the cases that name it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.case import Case

CODEC = "torchcodec==0.13.0"  # the last whose wheel fits a torch without CUDA
OURS = ("headrace", "headrace_threads", "torch_door", "swift")
TABLE = ("headrace", "torch_door", "torch")
"""Whom the table of the README compares."""
BEFORE_THESE = ("release02", "release02_door")
"""Can be asked for wherever the table is measured."""

THREADS = {
    "killed": "threads: there is no process that could be killed alone",
    "memory": "threads: one process, nothing to copy",
    "start_fork": "threads: nothing is forked",
    "spawn_first_batch": "threads: nothing is spawned",
}
NO_TAR = "reads no tar files; its users unpack or convert them first"
NO_TABLE = "has no frames: a row is a Python object, as in torch"
NO_STATE = "has no snapshots"
BLOCKS = "works on blocks of rows: single rows, and slow ones among them, are not what it schedules"
TORCH_INSIDE = dict.fromkeys(
    ("single", "heavy_tail", "images_float32"),
    "runs on torch's DataLoader: see that row, and the cases around this one",
)
ELSEWHERE = "the case is about others"
ITS_ORDER = "its batches depend on the number of workers: there is no order to keep"
STORED_ONLY = dict.fromkeys(
    ("batches", "columns", "consumer", "filtered", "graph", "media", "packed", "parquet", "resumable", "tar"),
    "is measured where stored formats are",
)
FEW = {
    "media": "is not measured with decoders: its other forms, and loaders like it, are",
    "packed": "neither mixes nor packs tokens by itself",
}
"""Why most have no part in what only a few are measured for."""
FILES_ONLY = "reads shards written in its own format, not objects in memory"


@dataclass(frozen=True, slots=True)
class Entry:
    title: str
    package: str
    takes: tuple[str, ...]
    environment: str = ""  # empty: the one that runs the benchmarks
    requires: tuple[str, ...] = ()  # what is installed there
    lacks: Mapping[str, str] = field(default_factory=dict)


ROSTER: dict[str, Entry] = {
    "headrace": Entry(
        "headrace",
        "headrace",
        ("batches", "filtered", "columns", "parquet", "tar", "media", "resumable", "graph", "packed"),
    ),
    "own": Entry("the format's own reader", "torch", ("stored",), lacks=STORED_ONLY),
    "release02": Entry(
        "headrace 0.2",
        "headrace",
        ("batches", "filtered", "columns", "parquet", "tar", "media", "resumable", "graph", "packed"),
    ),
    "release02_door": Entry(
        "`headrace.DataLoader` 0.2",
        "headrace",
        ("batches", "filtered", "columns", "tar", "media", "resumable"),
    ),
    "headrace_threads": Entry(
        'headrace, `kind="thread"`',
        "headrace",
        ("batches", "tar"),
        lacks={
            **THREADS,
            "columns": "the frame is measured with worker processes",
            "resumable": "the same snapshots as with processes",
            "epochs": "see small: nothing is turned around",
        },
    ),
    "torch_door": Entry(
        "`headrace.DataLoader`",
        "headrace",
        ("batches", "filtered", "columns", "tar", "media", "resumable"),
    ),
    "torch": Entry(
        "torch DataLoader",
        "torch",
        ("batches", "filtered", "columns", "tar", "media"),
        lacks={"resumable": NO_STATE},
    ),
    "torch_same": Entry(
        "torch DataLoader, the decoder of Headrace",
        "torch",
        ("media",),
        lacks={**dict.fromkeys(("batches", "columns", "tar", "resumable"), "see the row of torch")},
    ),
    "stateful": Entry(
        "torchdata StatefulDataLoader",
        "torchdata",
        ("batches", "columns", "tar", "resumable"),
        "peers",
        ("torchdata==0.11.0",),
    ),
    "nodes": Entry(
        "torchdata.nodes, processes",
        "torchdata",
        ("batches", "resumable"),
        "peers",
        ("torchdata==0.11.0",),
        lacks={"tar": NO_TAR, "columns": NO_TABLE},
    ),
    "nodes_threads": Entry(
        "torchdata.nodes, threads",
        "torchdata",
        ("batches",),
        "peers",
        ("torchdata==0.11.0",),
        lacks={**THREADS, "tar": NO_TAR, "columns": NO_TABLE, "resumable": "see the row with processes"},
    ),
    "datapipes": Entry(
        "torchdata 0.9 DataLoader2",
        "torchdata",
        ("graph", "tar", "batches"),
        "datapipes",
        ("torchdata==0.9.0",),
        lacks={
            "columns": NO_TABLE,
            "resumable": "its state is the serialised graph at the start of an epoch",
            "heavy_tail": ITS_ORDER,
            "spawn_first_batch": ITS_ORDER,
            "start_fork": ITS_ORDER,
        },
    ),
    "grain": Entry(
        "Grain, processes",
        "grain",
        ("batches", "media", "resumable", "packed"),
        "peers",
        ("grain==0.2.18", "tokenizers==0.23.3", CODEC),
        lacks={
            "tar": NO_TAR,
            "columns": NO_TABLE,
            "start_fork": "starts its workers by spawn only",
        },
    ),
    "grain_threads": Entry(
        "Grain, threads",
        "grain",
        ("batches",),
        "peers",
        ("grain==0.2.18",),
        lacks={**THREADS, "tar": NO_TAR, "columns": NO_TABLE, "resumable": "see the row with processes"},
    ),
    "spdl": Entry(
        "SPDL, threads",
        "spdl-core",
        ("batches", "tar", "media"),
        "peers",
        ("spdl==0.8.0",),
        lacks={**THREADS, "columns": NO_TABLE, "resumable": NO_STATE},
    ),
    "spdl_processes": Entry(
        "SPDL, processes",
        "spdl-core",
        ("batches",),
        "peers",
        ("spdl==0.8.0",),
        lacks={"columns": NO_TABLE, "resumable": NO_STATE, "tar": "see the row with threads"},
    ),
    "webdataset": Entry(
        "WebDataset",
        "webdataset",
        ("tar", "media"),
        "peers",
        ("webdataset==1.0.2", CODEC),
        lacks={
            "batches": "reads tar files only",
            "columns": "reads tar files only",
            "resumable": NO_STATE,
        },
    ),
    "mosaic": Entry(
        "MosaicML Streaming",
        "mosaicml-streaming",
        ("batches", "resumable"),
        "mosaic",
        ("mosaicml-streaming==0.13.0",),
        lacks={**TORCH_INSIDE, "memory": FILES_ONLY, "columns": NO_TABLE, "tar": NO_TAR},
    ),
    "litdata": Entry(
        "LitData",
        "litdata",
        ("batches", "media", "resumable"),
        "peers",
        ("litdata==0.2.76", CODEC),
        lacks={**TORCH_INSIDE, "memory": FILES_ONLY, "columns": NO_TABLE, "tar": NO_TAR},
    ),
    "ray": Entry(
        "Ray Data",
        "ray",
        ("batches", "columns", "parquet", "tar"),
        "peers",
        ("ray[data]==2.60.0", "aiohttp"),
        lacks={
            "resumable": NO_STATE,
            "single": BLOCKS,
            "heavy_tail": BLOCKS,
            "images_float32": "see images_uint8",
            "memory": "tasks get blocks, and the data set as one object of the object store",
            "start_fork": "its workers are processes of a cluster, neither forked nor spawned from this one",
            "spawn_first_batch": "its workers are processes of a cluster, neither forked nor spawned from this one",
        },
    ),
    "hf": Entry(
        "HF datasets",
        "datasets",
        ("batches", "columns", "parquet", "tar", "packed"),
        "peers",
        ("datasets==5.2.0", "tokenizers==0.23.3"),
        lacks={
            **TORCH_INSIDE,
            "images_uint8": "keeps images compressed, see jpeg",
            "memory": "keeps rows in an Arrow table, not as Python objects",
            "resumable": "its streaming state leaves out what the shuffle buffer holds: the next batch is another one",
        },
    ),
}


def reason(case: Case, subject: str) -> str | None:
    """Why the subject has no part in the case, or None: it has."""
    if case.subjects:
        return None if subject in case.subjects else ELSEWHERE
    entry = ROSTER.get(subject)
    if entry is None:
        return None if "." in subject else ELSEWHERE
    if not case.peers and subject not in (*TABLE, *BEFORE_THESE):
        return ELSEWHERE
    if case.name in entry.lacks:
        return entry.lacks[case.name]
    if case.needs not in entry.takes:
        return entry.lacks.get(case.needs, FEW.get(case.needs, "has nothing of the kind"))
    return None


def title(subject: str) -> str:
    return ROSTER[subject].title if subject in ROSTER else subject
