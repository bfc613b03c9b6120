"""Whole documents in rows: tokens a second from texts that are tokenized on the way, and how much is padding."""

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.cases.text_pack import DOCUMENTS, LENGTH, SIZE, WORKERS, Counted, expected
from benchmarks.text import documents, tokenizer, without_end

CASE = Case(
    name="text_fit",
    question="How many tokens a second, from texts tokenized by 2 workers and laid whole into rows of 1024?",
    targets=(
        Target("tokenized, packed whole", "tokens/s", "tokens/s", ("headrace", "grain"), at_least=1.0),
        Target("packed whole: padding", "padding", "%", ("headrace", "grain"), at_most=1.0, less=True),
    ),
    subjects=("headrace", "grain"),
    needs="packed",
    deadline=240.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    texts = documents(effort.count(DOCUMENTS, least=256), 21)
    epoch = expected(texts)
    with subject.packed([texts], None, tokenizer(), length=LENGTH, size=SIZE, workers=WORKERS, how="fit") as loader:
        counted = Counted(without_end(loader))
        counted.take(epoch)
        rate = counted.rate(epoch, effort)
    return {"tokens/s": rate, "padding": 100 * (1 - counted.real / counted.room)}
