"""Reading and writing of records: what is expected of each key, what is said of what is not, what a failure leaves."""

import copy
import errno
import os
import resource
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from scalebook.training.base.files import records
from scalebook.training.base.files.records import VERSION, BrokenRecord


@dataclass(frozen=True)
class Part:
    number: int


@dataclass(frozen=True)
class Whole:
    name: str
    rate: float
    part: Part
    kind: Literal["one", "two"] = "one"
    on: bool = False
    maybe: float | None = None
    parts: list[Part] = field(default_factory=list)
    by_name: dict[str, float] = field(default_factory=dict)
    anything: Any = None


WHOLE = Whole("x", 0.5, Part(1), "two", True, 2.0, [Part(2)], {"a": float("inf")}, [1, {"b": None}])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert records.load(path, Whole) is None
    records.save(path, WHOLE, durable=True)
    assert records.load(path, Whole) == WHOLE
    assert f'"version": {VERSION}' in path.read_text(encoding="utf-8")
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is broken (empty)"),
        (" \n", "is broken (empty)"),
        ("{", "is broken (not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ("[]", "is broken (the whole record is [], not mapping)"),
        ("{}", "is broken (name is missing)"),
        ('{"name": "x", "rate": 1, "part": {}}', "is broken (part.number is missing)"),
        ('{"name": "x", "rate": 1, "part": {"number": true}}', "is broken (part.number is True, not int)"),
        ('{"name": "x", "rate": 1, "part": {"number": 1.5}}', "is broken (part.number is 1.5, not int)"),
        ('{"name": 1, "rate": 1, "part": {"number": 1}}', "is broken (name is 1, not str)"),
        ('{"name": "x", "rate": "1", "part": {"number": 1}}', "is broken (rate is '1', not float)"),
        (
            '{"name": "x", "rate": 1, "part": {"number": 1}, "kind": "three"}',
            "is broken (kind is 'three', not one of one, two)",
        ),
        ('{"name": "x", "rate": 1, "part": {"number": 1}, "parts": {}}', "is broken (parts is {}, not list)"),
        (
            '{"name": "x", "rate": 1, "part": {"number": 1}, "by_name": {"a": null}}',
            "is broken (by_name.a is None, not float)",
        ),
        ('{"version": 2}', "was written by a newer Scalebook (it has version 2, but this one reads up to 1)"),
        ("[" * 200_000, "is broken (nested too deeply)"),
    ],
)
def test_what_cannot_be_is_named_with_its_key(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    assert records.peek(path, Whole) is None
    with pytest.raises(BrokenRecord) as error:
        records.load(path, Whole)
    assert f"{error.value.problem.key} {error.value.problem.message}" == f"{path} {why}"
    assert error.value.newer == ("newer" in why)
    again = copy.copy(error.value)  # as between processes
    assert (str(again), again.path, again.newer) == (str(error.value), path, error.value.newer)


def test_keys_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    records.save(path, {"name": "x", "rate": 2, "part": {"number": 1, "more": 2}, "later": [1]})
    found = records.load(path, Whole)
    assert found == Whole("x", 2.0, Part(1))


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name, why in (
        ("pipe", "not a regular file"),
        ("folder", "not a regular file"),
        ("file/below", "Not a directory"),
    ):
        with pytest.raises(BrokenRecord) as error:
            records.load(tmp_path / name, Whole)
        assert error.value.why == why


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", b"- 1", b"1: 2", b"", b"a: 1\na: 2"])
def test_a_mapping_in_yaml_is_a_mapping_or_broken(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.yaml"
    assert records.mapping(path) is None
    path.write_bytes(b"a: {b: 1}")
    found = records.mapping(path)
    assert found == {"a": {"b": 1}}
    found["a"]["b"] = 2
    assert records.mapping(path) == {"a": {"b": 1}}  # what is given away may be changed
    path.write_bytes(content)
    with pytest.raises(BrokenRecord, match="is broken"):
        records.mapping(path)


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_leaves_the_old_record_and_nothing_beside_it(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    records.save(path, WHOLE)

    def full(*told: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(call, full)
    with pytest.raises(OSError, match="No space left"):
        records.save(path, Part(1), durable=True)
    assert records.load(path, Whole) == WHOLE
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_a_file_that_may_not_grow_leaves_the_old_record(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    records.save(path, WHOLE)
    pid = os.fork()
    if pid == 0:  # the kernel itself refuses the write: EFBIG in mid-file
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            records.put(path, b"x" * 10_000, durable=True)
        except OSError as error:
            os._exit(int(error.errno != errno.EFBIG))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert records.load(path, Whole) == WHOLE
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
