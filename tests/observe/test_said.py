"""What a loader says in the log about things that are allowed and easily overlooked."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace import Loader, Pipe, World
from headrace.cli import main
from headrace.errors import BadPipe


def test_a_mixture_whose_shares_will_change_says_when_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    mixture = Pipe.of(range(30)).mix(Pipe.of(range(5)), weights=[1, 1])
    with Loader(mixture.shuffle().batch(4)):
        pass
    assert "input 1 (counted from 0) ends after 10 of 35 samples" in caplog.text
    assert 'ends="first"' in caplog.text
    caplog.clear()
    with Loader(mixture, world=World(rank=1, ranks=2)):  # one line a job, not one a rank
        pass
    assert not caplog.records


@pytest.mark.parametrize("ends", ["first", "all", "forever"])
def test_a_mixture_that_keeps_its_shares_says_nothing(ends: str, caplog: pytest.LogCaptureFixture) -> None:
    short = Pipe.of(range(5))
    with Loader(Pipe.of(range(30)).mix(short, weights=[1, 1], ends=ends)):  # type: ignore[arg-type]
        pass
    with Loader(Pipe.of(range(301)).mix(Pipe.of(range(100)), weights=[3, 1])):  # both end at the end
        pass
    with Loader(Pipe.of(range(30)).mix(short, weights=[0.6, 0.1])):
        pass
    assert not caplog.records


def test_a_stream_that_ends_before_the_others_of_a_mixture_is_said_when_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mixture = Pipe.of(lambda: iter(range(30))).mix(Pipe.of(lambda: iter(range(5))), weights=[1, 1])
    with Loader(mixture) as loader:
        assert not caplog.records
        assert len(list(loader)) == 35
    assert [record.levelno for record in caplog.records] == [logging.WARNING]  # the last one that ends ends it all
    assert "input 1 (counted from 0) ends after" in caplog.text


def test_collate_says_once_that_arrays_of_objects_stay_a_list(caplog: pytest.LogCaptureFixture) -> None:
    sample = {"odd field": np.array([None, "x"], dtype=object)}
    with Loader(Pipe.of([sample] * 8).batch(2).collate()) as loader:
        assert all(type(batch["odd field"]) is list for batch in loader)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "field ['odd field']" in said
    assert "astype" in said


def test_progress_is_a_public_name() -> None:
    assert "progress" in headrace.__all__
    with Loader(Pipe.of(range(4))) as loader:
        assert list(headrace.progress(loader)) == [0, 1, 2, 3]


def test_an_epoch_without_samples_is_said_once_for_a_pipe(caplog: pytest.LogCaptureFixture) -> None:
    with Loader(Pipe.of([]).map(hash).batch(3)) as loader:
        assert [*loader, *loader] == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert "no samples" in said
    assert "map(hash)" in said


def test_a_file_that_cannot_be_decoded_is_named_in_the_error_and_in_the_quarantine(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"{")
    pipe = Pipe.of([str(broken)]).decode()  # a path alone is opened
    with pytest.raises(ValueError, match="Expecting property name") as caught, Loader(pipe) as loader:
        list(loader)
    assert f"headrace: decoding {str(broken)!r}" in caught.value.__notes__
    with Loader(pipe, on_error="skip", quarantine=tmp_path / "bad.jsonl") as loader:
        list(loader)
    assert "broken.json" in (tmp_path / "bad.jsonl").read_text()


def test_files_opened_as_text_are_told_from_broken_ones(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(UnicodeDecodeError) as caught, Loader(Pipe.of([str(tmp_path / "a.jpg")]).open_files()) as loader:
        list(Loader(loader.pipe.decode()))
    assert any('.open_files("rb")' in note for note in caught.value.__notes__)
    with pytest.raises(BadPipe, match="open_files"):
        list(Pipe.of([7]).decode())


def test_tokenize_does_not_overwrite_files_and_tells_a_broken_line_in_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"text": \n')
    args = ["tokenize", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "a"), "--tokenizer", "bytes"]
    assert main(args) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "sample 1, counted from 0" in line
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n')
    args[1:4] = [str(tmp_path / "b.jsonl"), "--out", str(tmp_path / "b")]
    assert main(args) == 0
    assert main(args) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*args, "--overwrite"]) == 0


class Counted:
    """Has a length, and can only be read from its start."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 5000

    def __iter__(self) -> Iterator[int]:
        for number in range(5000):
            self.read += 1
            yield number


def test_explain_tells_the_truth_about_what_a_resume_reads_of_an_iterable_with_a_length() -> None:
    data = Counted()
    pipe = Pipe.of(data).batch(10)
    assert "resume: everything before the position" in pipe.explain()
    with Loader(pipe) as loader:
        batches = iter(loader)
        for _ in range(300):
            next(batches)
        state = loader.state_dict()
    data.read = 0
    with Loader(pipe) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader))[0] == 3000
    assert data.read > 3000
