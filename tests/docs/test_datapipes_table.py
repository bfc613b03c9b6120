"""The table of operators in docs/datapipes.md is the one that is made here, from the inventory.

After a change, `python -m tests.docs.test_datapipes_table` writes it anew.
"""

from pathlib import Path

from headrace.doors.datapipes.iter import LEFT_OUT
from tests.doors.datapipe_inventory import STREAMS, TABLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "datapipes.md"
START, END = "<!-- operators:start -->", "<!-- operators:end -->"

BETTER = "better"
DIFFERENT = "different"
OUT = "left out"

STRICT = "bytes that cannot be decoded are an error with file and line; `errors='ignore'` is the old way"
HTTP = "by `requests`, timeout 60 s if none is given; a broken read goes on at the byte reached"
GDRIVE = "by `gdown`, timeout 60 s if none is given; the keywords are those of `gdown.download`"
TORCHARROW = "frames are pandas; `dtype` and `device` were torcharrow's and are refused"
CLOSED = "streams are closed exactly once; a member that leads out of the archive's folder is refused"
IOPATH = "by fsspec, as iopath is archived; `pathmgr` and `handler` are refused"
COPY = "the sample is copied, never changed in place"

NOTES: dict[str, tuple[str, str]] = {
    "BatchAsyncMapper": (BETTER, f"{COPY}; works in any worker"),
    "Batcher": (DIFFERENT, "plain lists, the same for any number of workers; `wrapper_class=DataChunk` is the old way"),
    "BucketBatcher": (BETTER, "the same batches for any number of workers"),
    "Bz2FileLoader": (BETTER, "only the suffix is taken off the name"),
    "CSVDictParser": (DIFFERENT, STRICT),
    "CSVParser": (DIFFERENT, STRICT),
    "Collator": (DIFFERENT, "torch tensors where torch is installed, numpy arrays otherwise"),
    "DataFrameMaker": (DIFFERENT, TORCHARROW),
    "EndOnDiskCacheHolder": (BETTER, "the paths come in the same order cold and warm; the lock dies with its owner"),
    "FSSpecFileOpener": (BETTER, "a remote read that breaks is retried from the byte reached"),
    "Flattener": (BETTER, "`flatten(0)` flattens only field 0"),
    "Forker": (DIFFERENT, "inside one graph the source is read once; children iterated apart each read it themselves"),
    "Demultiplexer": (DIFFERENT, "inside one graph the source is read once; children iterated apart each read it"),
    "RoundRobinDemultiplexer": (DIFFERENT, "as `fork`"),
    "UnZipper": (DIFFERENT, "as `fork`"),
    "GDriveReader": (DIFFERENT, GDRIVE),
    "Grouper": (BETTER, "with `keep_key`, a group that leaves a full buffer has its own key"),
    "HashChecker": (BETTER, "text is checked too"),
    "Header": (BETTER, "reads `limit` samples, not one more"),
    "HttpReader": (DIFFERENT, HTTP),
    "HuggingFaceHubReader": ("same", "needs the package `datasets`"),
    "InBatchShuffler": (BETTER, "keyed by the batch's number: the same for any number of workers"),
    "InMemoryCacheHolder": (DIFFERENT, "keeps the stream of epoch 0, whichever epoch runs first; `size` is kept to"),
    "IoPathFileLister": (DIFFERENT, IOPATH),
    "IoPathFileOpener": (DIFFERENT, IOPATH),
    "IoPathSaver": (DIFFERENT, f"{IOPATH}; files are written whole: there is no mode `a`"),
    "IterableWrapper": (DIFFERENT, "an iterator that is read a second time is an error, not an empty epoch"),
    "IterKeyZipper": (BETTER, "resumes in the middle of an epoch"),
    "LineReader": (DIFFERENT, STRICT),
    "Mapper": (DIFFERENT, f"with `input_col`, {COPY}"),
    "OnDiskCacheHolder": (BETTER, "the paths come in the same order cold and warm"),
    "OnlineReader": (DIFFERENT, f"{HTTP}; Google Drive by `gdown`"),
    "ParquetDataFrameLoader": (DIFFERENT, TORCHARROW),
    "Prefetcher": (DIFFERENT, "only a mark: the engine reads ahead in every graph"),
    "RandomSplitter": (
        DIFFERENT,
        "our generator, so other parts than before; sizes are exact, in every epoch the same",
    ),
    "RarArchiveLoader": (BETTER, f"needs `rarfile`; {CLOSED}"),
    "SampleMultiplexer": (BETTER, "follows the loader's seed; each epoch is a function of it"),
    "Sampler": ("same", "without `sampler` it needs no torch"),
    "Saver": (BETTER, "a bare file name works; a file appears only when it is complete"),
    "ShardingFilter": (
        DIFFERENT,
        "says where work is divided; batches after it do not depend on the number of workers",
    ),
    "ShardingRoundRobinDispatcher": (BETTER, "a shard point: what stands before it runs once"),
    "ShuffledFlatMapper": (BETTER, "a new order each epoch; resumes in the middle"),
    "Shuffler": (DIFFERENT, "a new order each epoch without `seed()`; of all data where there is random access"),
    "TFRecordLoader": (BETTER, "check sums are verified; no protobuf needed"),
    "TarArchiveLoader": (BETTER, CLOSED),
    "ThreadPoolMapper": (DIFFERENT, "works in chunks of `scheduled_tasks` samples; order kept"),
    "WebDataset": ("same", "see also `Pipe.shards(paths)`"),
    "XzFileLoader": (BETTER, "only the suffix is taken off the name"),
    "ZipArchiveLoader": (BETTER, CLOSED),
}
"""Class of streams -> (verdict, note); a class that is not here is the same."""

TABLE_NOTES: dict[str, tuple[str, str]] = {
    "Batcher": (DIFFERENT, "plain lists; `wrapper_class=DataChunk` is the old way"),
    "InMemoryCacheHolder": (BETTER, "one copy per process, made in epoch 0's way"),
    "Shuffler": (DIFFERENT, "a stream, in a new order each epoch without `seed()`"),
}


def table() -> str:
    lines = ["| class | verb | | note |", "|---|---|---|---|"]
    for name, (verb, _) in sorted(STREAMS.items()):
        verdict, note = (OUT, LEFT_OUT[name]) if name in LEFT_OUT else NOTES.get(name, ("same", ""))
        lines.append(row(f"`{name}`", verb, verdict, note))
    for name, (verb, _) in sorted(TABLES.items()):
        lines.append(row(f"`{name}` (map)", verb, *TABLE_NOTES.get(name, ("same", ""))))
    return "\n".join(lines)


def row(name: str, verb: str, verdict: str, note: str) -> str:
    return f"| {name} | {f'`{verb}`' if verb else '-'} | {verdict} | {note} |"


def test_the_page_has_the_table_of_every_operator() -> None:
    _, _, rest = PAGE.read_text().partition(START)
    shown, _, _ = rest.partition(END)
    assert shown.strip() == table(), "run python -m tests.docs.test_datapipes_table"


def test_every_note_is_about_an_operator() -> None:
    assert set(NOTES) <= set(STREAMS) - set(LEFT_OUT)
    assert set(TABLE_NOTES) <= set(TABLES)


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}")
