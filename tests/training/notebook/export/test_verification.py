"""Archives of released versions; and, in one of this version, every value changed in turn."""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import scalebook
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.cli.notebook import main
from scalebook.training.notebook.claims.judging import Judgement, judge_all
from scalebook.training.notebook.export.archive_records import (
    MANIFEST,
    README,
    Manifest,
    archived_verdicts,
    readable,
)
from scalebook.training.notebook.export.consistency import differing
from scalebook.training.notebook.export.verification import (
    ArchivedEvidenceReader,
    _check_hashes,
    _read,
    check,
    verify,
)

HERE = Path(__file__).parent
RELEASED = HERE / "lines-0.2.0.zip"
"""Made by that release from six runs of a model in `modules/`, and a search of two trials."""
PRESENT = HERE / "lines-form-3.zip"
"""The same, made when archives got their form 3."""
Files = dict[str, bytes]


def opened(path: Path) -> Files:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(files: Mapping[str, bytes], path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return path


def manifest_of(files: Mapping[str, bytes]) -> Manifest:
    return records.parse(Path(MANIFEST), files[MANIFEST], Manifest)


def sealed(files: Files, **changes: Any) -> Files:
    """With all hashes as they have to be, as somebody would write them who means to deceive."""
    others = {name: data for name, data in files.items() if name != MANIFEST}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(others.items())}
    manifest = replace(manifest_of(files), files=hashes, **changes)
    manifest = replace(manifest, digest=manifest.own_digest())
    return {**others, MANIFEST: json.dumps(asdict(manifest)).encode()}


@pytest.fixture(scope="module")
def today() -> Files:
    """The archive of form 3 in the words of this version."""
    files = opened(PRESENT)
    content = _read(PRESENT, files, manifest_of(files))
    verdicts = archived_verdicts(judge_all(ArchivedEvidenceReader(Path("none"), content)))
    files[README] = readable(content.nb.title, "lines.md", verdicts).encode()
    return sealed(files, scalebook=scalebook.__version__, verdicts=verdicts)


def test_an_archive_of_a_release_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(RELEASED)]) == 0
    printed = capsys.readouterr().out
    assert "fast-is-sooner: supported: " in printed
    assert "1 claim judged again" in printed
    assert (
        "  - Whether the runs used the code in modules/. The version of Scalebook that made the archive did not "
        "record this.\n"
    ) in printed


def test_our_sentences_may_change(today: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an archive of an earlier version other words are notes, other numbers are differences."""
    monkeypatch.setattr(
        Judgement, "statement", property(lambda judgement: "it takes fewer updates to a loss of 3, less than 0.8 x")
    )
    earlier = sealed(today, scalebook="0.1.9")
    verified = verify(packed(earlier, tmp_path / "a.zip"))
    assert verified.differences == ["scalebook: 8 runs used 0.2.0, but the archive lists 0.1.9"]
    assert [note.split(": ")[1:3] for note in verified.notes] == [["fast-is-sooner", "statement"]]
    assert verify(packed(today, tmp_path / "same.zip")).differences[0].startswith("fast-is-sooner: statement: ")


def test_an_archive_of_this_version_passes(today: Files, tmp_path: Path) -> None:
    verified = verify(packed(today, tmp_path / "a.zip"))
    assert (verified.differences, verified.notes) == ([], [])
    assert len(verified.unchecked) == 3


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values; of a list the first, one in the middle and the last."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list) and value:
        for index in sorted({0, len(value) // 2, len(value) - 1}):
            yield from leaves(value[index], (*place, index))
    else:
        yield place


def changed(value: Any, place: tuple[Any, ...]) -> Any:
    """A copy with another value in one place."""
    if place:
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[place[0]] = changed(copy[place[0]], place[1:])
        return copy
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}1" if isinstance(value, str) else [*value, "1"] if isinstance(value, list) else {"1": "1"}


def tampered(data: bytes, is_json: bool) -> Iterator[tuple[str, bytes]]:
    """The content with one value changed, in turn; of a text, with one digit or letter changed in each line."""
    if is_json:
        content = json.loads(data)
        for place in leaves(content):
            yield "/".join(map(str, place)), json.dumps(changed(content, place)).encode()
        return
    lines = data.decode().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if at := [index for index, letter in enumerate(line) if letter.isalnum()]:
            letter = "7" if line[at[-1]] != "7" else "8"
            other = f"{line[: at[-1]]}{letter}{line[at[-1] + 1 :]}"
            yield f"line {number + 1}", "".join([*lines[:number], other, *lines[number + 1 :]]).encode()


def kinds(files: Files) -> dict[str, str]:
    """One file of each kind: all, but of runs one of an experiment, and one of a trial."""
    runs = sorted(name for name in files if name.startswith("runs/"))
    of_trial = next(name for name in runs if b'"scalebook.trial"' in files[name])
    of_cell = next(name for name in runs if b'"scalebook.trial"' not in files[name])
    others = {name: name for name in files if name not in (*runs, "description.json")}
    return {**others, "run": of_cell, "trial": of_trial}


def is_found(files: Files) -> bool:
    """Whether `verify` would report the files."""
    try:
        manifest = manifest_of(files)
        _check_hashes(PRESENT, files, manifest)
        checked = check(PRESENT, files, manifest)
    except ConfigError:
        return True
    return bool(checked.differences or differing(checked.findings, manifest)[0])


def test_every_change_of_one_value_is_found(today: Files) -> None:
    """Whatever it is, in whatever file: the manifest has the hashes of all files, and its own."""
    assert not is_found(today)
    places = [(name, where, data) for name in today for where, data in tampered(today[name], name.endswith(".json"))]
    missed = [
        (name, where) for name, where, data in places if data != today[name] and not is_found({**today, name: data})
    ]
    assert (len(places) > 1000, missed) == (True, [])


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("run", "record/tags/scalebook.workers", "2"),
        ("run", "record/tags/scalebook.batch_per_worker", "16"),
        ("run", "record/tags/scalebook.learning_rate", "0.5"),
        ("run", "record/tags/scalebook.seed", "9"),
        ("run", "record/tags/scalebook.modules", '{"line_model.py": "0123456789"}'),
        ("run", "record/tags/scalebook.versions", '{"torch": "1.0"}'),
        ("run", "record/tags/scalebook.machine", "128 cores"),
        ("run", "record/params/trainer.max_epochs", "60"),
        ("run", "record/params/optimizer.lr", "0.5"),
        ("run", "record/params/workers", "2"),
        ("run", "record/params/data.batch_size", "16"),
        ("run", "record/metrics/best\tval\tloss", 0.001),
        ("run", "record/metrics/final\tval\tloss", 0.001),
        ("run", "record/metrics/val\tloss", 0.001),
        ("run", "record/metrics/train\tloss", 0.001),
        ("run", "record/metrics/samples", 8.0),
        ("run", "record/metrics/updates", 1.0),
        ("run", "curves/val\tloss/values/0", 0.001),
        ("run", "curves/val\tloss/values/11", 0.001),
        ("run", "curves/val\tloss/updates/0", 400.0),
        ("run", "curves/val\tloss/samples/11", 8000.0),
        ("run", "curves/val\tloss/seconds/0", 1e6),
        ("run", "curves/train\tloss/samples/0", 1.0),
        ("trial", "record/tags/scalebook.point", "rate 0.09"),
        ("trial", "record/tags/scalebook.trial", "7"),
        ("trial", "record/tags/scalebook.learning_rate", "0.5"),
        ("trial", "record/params/optimizer.lr", "0.5"),
        ("trial", "record/params/trainer.max_epochs", "60"),
        ("searches.json", "rates/trials/0/point/learning_rate", 0.01),
        ("searches.json", "rates/trials/0/number", 5),
        ("searches.json", "rates/body/space/learning_rate/grid/1", 0.05),
        ("searches.json", "rates/identity", "0" * 12),
    ],
)
def test_what_contradicts_something_else_is_found_by_new_hashes_too(
    today: Files, name: str, where: str, value: Any
) -> None:
    file = kinds(today)[name]
    content = json.loads(today[file])
    *path, last = (part.replace("\t", "/") for part in where.split("/"))
    inner = content
    for part in path:
        inner = inner[int(part) if isinstance(inner, list) else part]
    key = int(last) if isinstance(inner, list) else last
    assert inner[key] != value
    inner[key] = value
    assert is_found(sealed({**today, file: json.dumps(content).encode()}))


@pytest.mark.parametrize(
    "name", ["configs/fast.yaml", "configs/slow.yaml", "configs/search-rates.yaml", "modules/line_model.py",
             "constraints.txt", README]
)  # fmt: skip
def test_each_line_of_configs_code_and_packages_is_compared(today: Files, name: str) -> None:
    changes = [(where, data) for where, data in tampered(today[name], False) if data != today[name]]
    chosen = changes[:: max(1, len(changes) // 12)]
    assert [where for where, data in chosen if not is_found(sealed({**today, name: data}))] == []


def test_each_line_of_cells_and_of_written_results_is_compared(today: Files) -> None:
    """But those of comparisons, and the number of trials of a grid, from which nothing follows that an archive has."""
    lines = today["notebook.md"].decode().splitlines()
    first, comparison, claim = (lines.index(line) for line in (
        "```yaml experiment=slow", "```yaml comparison=both", "```yaml claim=fast-is-sooner"
    ))  # fmt: skip
    numbers = {number for number in (*range(first, comparison), *range(claim, len(lines)))
               if lines[number] and lines[number][:3] not in ("```", "<!-", "| -", "| e", "tri")}  # fmt: skip
    missed = [
        where
        for where, data in tampered(today["notebook.md"], False)
        if int(where.removeprefix("line ")) - 1 in numbers and not is_found(sealed({**today, "notebook.md": data}))
    ]
    assert missed == []


def test_own_code_that_has_changed_since_is_known_from_the_start(today: Files, tmp_path: Path) -> None:
    """An untouched archive of it passes; its claims are judged as they were by its author."""
    code = {"line_model.py": "0123456789"}
    files = {**today, "modules/line_model.py": today["modules/line_model.py"]}
    content = _read(PRESENT, files, replace(manifest_of(files), code=code))
    judged = judge_all(ArchivedEvidenceReader(Path("none"), content))
    assert judged["fast-is-sooner"].verdict == "not resolved", "runs of other code are no evidence"
