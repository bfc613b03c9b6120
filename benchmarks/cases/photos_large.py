"""The folder of `photos` with photographs of 1024 x 768, as sites for sharing pictures keep them.

Most parts that are cut out of such a photograph are larger than twice what is asked for, so that less has to be decoded
than there is: Headrace decodes them at a half, and only down to the last row that is kept.
"""

from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.cases.photos import SAME, beside_bare
from benchmarks.training import Plan

PLAN = Plan("photos", files=512, size=64, files_are={"width": 1024, "height": 768})
CASE = Case(
    name="photos_large",
    question="How many photographs of 1024 x 768 a second, cut at random, in batches of 64, by 2 workers?",
    targets=(
        Target("JPEG folder, 1024 x 768, random crops", "samples/s", "images/s", FASTER),
        Target("the same, torch with the same decoder", "samples/s", "images/s", SAME, at_least=1.3),
        Target("the same, of two bare processes", "of bare", "%", at_least=95, ranked=False),
        Target("the same, for a second of processor time", "samples per cpu second", "images", SAME),
    ),
    needs="media",
    door=True,
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    return beside_bare(subject, effort, PLAN)
