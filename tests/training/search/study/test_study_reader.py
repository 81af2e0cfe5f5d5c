"""Reading while another process writes."""

import shutil
import threading
from pathlib import Path

import pytest

from scalebook.training.search.study import study_reader
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.study_reader import read_study
from tests.training.search.studies import BATCH, RATE, journal, run, search

SPEC = search(BATCH, RATE, sampler="random")


def test_where_there_is_nothing_there_are_no_trials(tmp_path: Path) -> None:
    assert read_study(journal(tmp_path), "x", SPEC) == []
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scalebook.training.search.study.journal import Journal

    lines = []
    whole = Journal.read_logs

    def counted(self: Journal, log_number_from: int) -> object:
        for line in whole(self, log_number_from):
            lines.append(line)
            yield line

    study = Study.open(journal(tmp_path), "x", SPEC)
    run(study, 5)
    first = read_study(journal(tmp_path), "x", SPEC)
    monkeypatch.setattr(Journal, "read_logs", counted)
    assert read_study(journal(tmp_path), "x", SPEC) == first
    assert lines == []
    asked = study.ask()
    lines.clear()
    second = read_study(journal(tmp_path), "x", SPEC)
    assert 0 < len(lines) <= 5
    assert [one.number for one in second] == [0, 1, 2, 3, 4, asked.number]
    assert all(a is b for a, b in zip(first, second, strict=False))


def test_a_study_made_anew_in_the_same_place_is_read_anew(tmp_path: Path) -> None:
    run(Study.open(journal(tmp_path / "a"), "x", SPEC), 3)
    assert len(read_study(journal(tmp_path / "a"), "x", SPEC)) == 3
    run(Study.open(journal(tmp_path / "b"), "x", SPEC), 1)
    (tmp_path / "b" / "journal.log").replace(tmp_path / "a" / "journal.log")
    assert len(read_study(journal(tmp_path / "a"), "x", SPEC)) == 1
    shutil.rmtree(tmp_path / "a")
    assert read_study(journal(tmp_path / "a"), "x", SPEC) == []


def test_a_torn_last_line_is_not_yet_there(tmp_path: Path) -> None:
    study = Study.open(journal(tmp_path), "x", SPEC)
    run(study, 2)
    path = tmp_path / "journal.log"
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    assert [one.state for one in read_study(journal(tmp_path), "x", SPEC)] == ["finished", "running"]
    path.write_bytes(content)
    assert [one.state for one in read_study(journal(tmp_path), "x", SPEC)] == ["finished", "finished"]


def test_several_threads_read_while_the_driver_writes(tmp_path: Path) -> None:
    study = Study.open(journal(tmp_path), "x", SPEC)
    over = threading.Event()
    wrong: list[str] = []

    def look() -> None:
        seen = 0
        while not over.is_set():
            records = read_study(journal(tmp_path), "x", SPEC)
            if len(records) < seen or [one.number for one in records] != [*range(len(records))]:
                wrong.append(f"{len(records)} after {seen}")
            seen = len(records)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        run(study, 40)
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=30)
    assert wrong == []
    assert len(read_study(journal(tmp_path), "x", SPEC)) == 40


def test_few_studies_are_kept_open(tmp_path: Path) -> None:
    study_reader.forget()
    run(Study.open(journal(tmp_path), "x", SPEC), 1)
    for number in range(study_reader.READINGS + 3):
        read_study(journal(tmp_path), f"study {number}", SPEC)
    assert len(study_reader._readings) == study_reader.READINGS
    assert len(read_study(journal(tmp_path), "x", SPEC)) == 1
