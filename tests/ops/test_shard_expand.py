import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op


def test_ranges_become_names() -> None:
    pipe = Pipe.of(["a-{008..010}.tar", "b", "c-{9..11}", "{0..1}/{3..4}"]).shard_expand()
    assert check_file_op(pipe) == [
        "a-008.tar", "a-009.tar", "a-010.tar", "b", "c-9", "c-10", "c-11", "0/3", "0/4", "1/3", "1/4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("x-{01..100}", "low bound must not start with 0 if low bound is shorter"),
        ("x-{100..99}", "low bound must be shorter than high bound"),
        ("x-{20..10}", "shard_expand: bad range in in shard spec x-{20..10}."),
        ("x-{a..b}", "shard_expand: bad range"),
        ("x-{1}", "shard_expand: bad range"),
    ],
)
def test_a_bad_range_is_refused(spec: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(Pipe.of([spec]).shard_expand())
