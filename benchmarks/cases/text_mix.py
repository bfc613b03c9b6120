"""Mixing: tokens a second from two sources of texts, 7 : 3, shuffled, tokenized on the way and cut into rows.

Tokenizing is nearly all of the work: `two of one` is what two workers give beside one, which two cores can at most
double; `bare two of one` is the same of bare processes without any loader.
"""

import time

from benchmarks.bare import in_processes
from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.cases.text_pack import LENGTH, SIZE, expected, tokens_a_second
from benchmarks.text import documents, tokenizer

SOURCES = (5734, 2457)
CASE = Case(
    name="text_mix",
    question="How many tokens a second, from two sources of texts, mixed 7 : 3, tokenized by 2 workers and packed?",
    targets=(
        Target("two sources mixed, packed", "tokens/s", "tokens/s", ("headrace", "grain"), at_least=1.0),
        Target("two sources mixed, packed", "tokens/s", "tokens/s", ("headrace", "hf"), at_least=1.0),
        Target("two workers of one", "two of one", "x", at_least=1.8, ranked=False),
        Target("two bare processes of one", "bare two of one", "x", ranked=False),
    ),
    needs="packed",
    deadline=240.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    sources = [documents(effort.count(count, least=128), 31 + i) for i, count in enumerate(SOURCES)]
    epoch = expected([text for source in sources for text in source])
    rates = []
    for workers in (1, 2):
        with subject.packed(sources, [7, 3], tokenizer(), length=LENGTH, size=SIZE, workers=workers) as loader:
            rates.append(tokens_a_second(loader, epoch, effort))
    alone, both = (sum(in_processes(n, lambda _: bare(sources[0], effort.seconds / 2))) for n in (1, 2))
    return {
        "tokens/s": rates[1],
        "one worker tokens/s": rates[0],
        "two of one": rates[1] / rates[0],
        "bare two of one": both / alone,
    }


def bare(texts: list[str], seconds: float) -> float:
    """Documents a second, tokenized in a loop."""
    made, count = tokenizer(), 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        made.encode(texts[count % len(texts)], add_special_tokens=False)
        count += 1
    return count / took
