"""A notebook as one file: what is in it, what it is judged as again, and files that somebody made to do harm."""

import hashlib
import io
import json
import os
import stat
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.cli.notebook import main
from scalebook.training.notebook import store
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.export import archive_file, consistency, verification
from scalebook.training.notebook.export.archive_file import archive
from scalebook.training.notebook.export.archive_records import LOCKS, MANIFEST, NOTEBOOK
from scalebook.training.notebook.export.verification import verify
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking.run_reader import RunReader
from tests.training.notebook.claims import test_claim_locks, test_judging
from tests.training.notebook.claims.test_claim_locks import CLAIM, PAGE, Page
from tests.training.notebook.claims.test_judging import EXPERIMENTS, SEARCH, Store

told, page = test_judging.told, test_claim_locks.page
CLAIMS = """```yaml claim=slow
runs: slow
against: base
figure: updates
metric: val/loss
target: 0.5
at_least: 1.9
```
```yaml claim=four
search: batch-size
runs: {workers: 4}
against: {workers: 1}
figure: samples
metric: val/loss
target: 0.5
at_least: 1.2
```
```yaml claim=unrun
runs: unrun
against: base
figure: updates
metric: val/loss
target: 0.5
at_most: 1.0
```
"""


def packed(told: Store, more: str = "") -> bytes:
    path = told.workspace.root / "first-steps.md"
    path.write_text(f"In {told.workspace.root}/data and {Path.home()} too.\n\n{EXPERIMENTS}{SEARCH}{CLAIMS}{more}")
    reader = RunReader(told.workspace.tracking_uri())
    return archive(told.workspace, reader, store.read(path), told.description)


@pytest.fixture(scope="module")
def content(told: Store) -> bytes:
    return packed(told)


def opened(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def reworded(notes: list[str]) -> list[str]:
    """The notes without those on tags of the store's runs, which were made up for claims alone."""
    return [note for note in notes if note.startswith("worded differently")]


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """With the digest of what is in it now."""
    content = {key: value for key, value in manifest.items() if key != "digest"}
    return {**content, "digest": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def zipped(files: Mapping[str, bytes], path: Path, listed: bool = True) -> Path:
    """`listed`: with the hashes of what is in it now, as somebody would who means to deceive."""
    files = dict(files)
    if listed:
        manifest = json.loads(files.pop(MANIFEST))
        manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        files[MANIFEST] = json.dumps(sealed(manifest)).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return path


def test_the_same_store_gives_the_same_bytes_without_folders_of_this_machine(told: Store, content: bytes) -> None:
    assert packed(told) == content
    files = opened(content)
    assert list(files) == sorted(files)
    assert {
        NOTEBOOK,
        MANIFEST,
        "constraints.txt",
        "configs/base.yaml",
        "configs/search-batch-size.yaml",
    } <= files.keys()
    whole = b"".join(files.values())
    assert str(told.workspace.root).encode() not in whole
    assert b"In ./data and ~ too." in files[NOTEBOOK]
    assert b"mlflow.user" not in whole
    runs = [json.loads(data) for name, data in files.items() if name.startswith("runs/")]
    assert len(runs) == 3 + 3 + 3 + 3 + 2 + 9 * 5
    assert all(len(run["curves"]["val/loss"]["values"]) == 40 for run in runs)
    assert b"torch==" in files["constraints.txt"]


def test_its_verdicts_follow_from_its_curves_alone(content: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "a.zip").write_bytes(content)
    archived, differences, notes, *_ = verify(path)
    assert (differences, reworded(notes)) == ([], [])
    assert {name: claim.verdict for name, claim in archived.items()} == {
        "slow": "supported", "four": "supported", "unrun": "not resolved",
    }  # fmt: skip
    assert os.listdir(tmp_path) == ["a.zip"], "nothing of it is unpacked"


def test_a_verdict_that_its_curves_do_not_bear_is_named(content: bytes, tmp_path: Path) -> None:
    files = opened(content)
    manifest = json.loads(files[MANIFEST])
    manifest["verdicts"]["unrun"]["verdict"] = "supported"
    (difference,) = verify(zipped({**files, MANIFEST: json.dumps(manifest).encode()}, tmp_path / "a.zip"))[1]
    assert difference == 'unrun: verdict: archived "supported", now "not resolved"'


def test_a_curve_that_was_changed_is_named_and_with_its_hash_changes_what_follows(
    content: bytes, tmp_path: Path
) -> None:
    files = opened(content)
    name = next(name for name, data in files.items() if b'"slow"' in data and name.startswith("runs/"))
    run = json.loads(files[name])
    run["curves"]["val/loss"]["values"] = [0.9] * 40
    files[name] = json.dumps(run).encode()
    with pytest.raises(ConfigError, match=f"{name} differs from what was archived"):
        verify(zipped(files, tmp_path / "a.zip", listed=False))
    assert any(said.startswith("slow: ") for said in verify(zipped(files, tmp_path / "b.zip"))[1])


def test_on_the_command_line(told: Store, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed(told)
    path = tmp_path / "out.zip"
    path.write_bytes(b"before" + content)  # an archive may be replaced
    notebook = str(told.workspace.root / "first-steps.md")
    assert main(["export", notebook, "--archive", "-o", str(path)]) == 0
    assert path.read_bytes() == content
    capsys.readouterr()
    assert main(["verify", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "3 claims judged again from the archived curves. Configs, code," in printed
    assert "compared: no difference\nFingerprint: " in printed
    assert "\nNot checked:\n  - Whether the runs took place" in printed
    files = opened(content)
    files[NOTEBOOK] = files[NOTEBOOK].replace(b"at_least: 1.9", b"at_least: 2.9")
    assert main(["verify", str(zipped(files, tmp_path / "b.zip"))]) == 1
    assert "DIFFERS: slow: verdict: archived" in capsys.readouterr().out


def test_own_modules_are_in_it_and_nobody_runs_them(content: bytes, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    evil = f"open({str(mark)!r}, 'w')\n".encode()
    files = {**opened(content), "modules/scalebook.py": evil, "modules/sitecustomize.py": evil}
    assert [said.partition(":")[0] for said in verify(zipped(files, tmp_path / "a.zip")).differences] == [
        "modules/scalebook.py", "modules/sitecustomize.py",
    ]  # fmt: skip
    assert not mark.exists()


Files = dict[str, bytes]


def edited(name: str, before: bytes, after: bytes) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        assert before in files[name], name
        files[name] = files[name].replace(before, after)

    return edit


def in_manifest(key: str, value: Any) -> Callable[[Files], None]:
    return lambda files: files.update({MANIFEST: json.dumps({**json.loads(files[MANIFEST]), key: value}).encode()})


def run_of(files: Files, cell: str) -> str:
    return next(
        name for name, data in files.items()
        if name.startswith("runs/") and json.loads(data)["record"]["tags"].get("scalebook.cell") == cell
    )  # fmt: skip


def a_run(change: Callable[[dict[str, Any]], object], renamed: bool = False) -> Callable[[Files], None]:
    """One of no claim: that of the cell `base` that no claim rests on, or any other."""

    def edit(files: Files) -> None:
        name = run_of(files, "base")
        run = json.loads(files.pop(name))
        change(run)
        files[f"runs/{run['record']['id']}.json" if renamed else name] = json.dumps(run).encode()

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            edited("configs/base.yaml", b"max_epochs: 1", b"max_epochs: 10"),
            "configs/base.yaml: differs from the notebook",
        ),
        (
            edited("configs/search-batch-size.yaml", b"[1, 4, 8]", b"[1, 4]"),
            "configs/search-batch-size.yaml: differs from",
        ),
        (lambda files: files.pop("configs/base.yaml"), "configs/base.yaml: missing"),
        (lambda files: files.update({"configs/more.yaml": b"{}"}), "configs/more.yaml: belongs to no cell"),
        (edited("constraints.txt", b"torch==", b"torch==9"), "constraints.txt: the packages differ"),
        (in_manifest("packages", {"torch": "1.0"}), "constraints.txt: the packages differ"),
        (in_manifest("machines", ["128 cores"]), "machines: the archive lists ['128 cores']"),
        (lambda files: files.update({"modules/more.py": b"x"}), "modules/more.py: is not part of a module"),
        (lambda files: files.update({"readme.txt": b"x"}), "readme.txt: is not part of a module"),
        (a_run(lambda run: run["record"].update(id="other")), "contains the run other"),
        (a_run(lambda run: run["record"]["metrics"].update({"val/loss": 0.001})), "val/loss: the last value, 0.001"),
        (
            a_run(lambda run: run["record"]["tags"].update({"scalebook.notebook": "b.md"})),
            "belongs to no cell of the notebook",
        ),
        (
            a_run(lambda run: run["record"]["tags"].update({"scalebook.cell": "x", "scalebook.config_hash": "y"})),
            "belongs to no cell of the notebook",
        ),
    ],
)
def test_what_it_says_beside_its_claims_is_compared_too(
    edit: Callable[[Files], None], said: str, content: bytes, tmp_path: Path
) -> None:
    files = opened(content)
    edit(files)
    differences = verify(zipped(files, tmp_path / "a.zip")).differences
    assert any(said in difference for difference in differences), differences


def test_another_versions_words_are_no_difference_and_its_values_are(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = opened(content)
    manifest = json.loads(files[MANIFEST])
    slow = manifest["verdicts"]["slow"]
    slow["remarks"] = ["As they said it then."]
    slow["statement"] = slow["statement"].replace("updates", "steps")
    path = zipped({**files, MANIFEST: json.dumps(manifest).encode()}, tmp_path / "same.zip")
    assert len(verify(path).differences) == 2, "the same version says the same words"
    manifest["scalebook"] = "0.1.0"
    path = zipped({**files, MANIFEST: json.dumps(manifest).encode()}, tmp_path / "older.zip")
    assert [note.split(": ")[1:3] for note in reworded(verify(path).notes)] == [
        ["slow", "statement"],
        ["slow", "remarks"],
    ]
    assert main(["verify", str(path)]) == 0
    assert (
        "worded differently by the version of Scalebook that wrote the archive: slow: remarks"
    ) in capsys.readouterr().out
    row = slow["table"][1]
    place = next(place for place, cell in enumerate(row) if any(letter.isdigit() for letter in cell))
    row[place] = f"9{row[place]}"
    path = zipped({**files, MANIFEST: json.dumps(manifest).encode()}, tmp_path / "other.zip")
    assert [said.split(": ")[:2] for said in verify(path).differences] == [["slow", "table"]]
    slow["verdict"] = "not supported"
    path = zipped({**files, MANIFEST: json.dumps(manifest).encode()}, tmp_path / "more.zip")
    assert main(["verify", str(path)]) == 1


def test_configs_are_compared_by_their_meaning(content: bytes, tmp_path: Path) -> None:
    files = opened(content)
    files["configs/base.yaml"] = b"# the same\n" + yaml.dump(yaml.load(files["configs/base.yaml"].decode())).encode()
    assert verify(zipped(files, tmp_path / "a.zip")).differences == []
    path = "scalebook.training.zoo.models.MLPClassifier"
    old = {"model": {"class_path": path.replace("zoo.", "")}, "note": None}
    assert consistency._meaning(old) == {"model": {"class_path": path}, "note": "~"}


# --- made to do harm -----------------------------------------------------------------------------------------------


def named(name: str, data: bytes = b"x", **of: Any) -> Callable[[Path, bytes], None]:
    """With one more file; `of` are attributes of its entry."""

    def make(path: Path, content: bytes) -> None:
        entry = zipfile.ZipInfo(name)
        entry.compress_type = zipfile.ZIP_DEFLATED
        for key, value in of.items():
            setattr(entry, key, value)
        with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(path, "w") as file:
            for old in before.infolist():
                file.writestr(old, before.read(old))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a name twice
                file.writestr(entry, data)

    return make


def replaced(name: str, data: bytes) -> Callable[[Path, bytes], object]:
    return lambda path, content: zipped({**opened(content), name: data}, path, listed=name != MANIFEST)


def disagreeing(path: Path, content: bytes) -> None:
    """A trial whose seeds are no numbers, and curves that are longer than their axes."""
    files = opened(content)
    for name in files:
        if name.startswith("runs/"):
            run = json.loads(files[name])
            run["curves"]["val/loss"]["values"] += [0.0]
            files[name] = json.dumps(run).encode()
    found = json.loads(files["searches.json"])
    found["batch-size"]["trials"][0]["runs"] = {"one": "x"}
    files["searches.json"] = json.dumps(found).encode()
    zipped(files, path)


def many(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for number in range(20_000):
            file.writestr(f"{number}", b"")


def counted_as_few(path: Path, content: bytes) -> None:
    """The end of the file says that there are ten files; the list has 60,000."""
    many(path, content)
    data = bytearray(path.read_bytes())
    data[-14:-10] = (10).to_bytes(2, "little") * 2
    path.write_bytes(data)


def lies_about_its_size(path: Path, content: bytes) -> None:
    """A bomb: 64 MB of zeros that say to be 10 bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", bytes(2**26))
    path.write_bytes(path.read_bytes().replace((2**26).to_bytes(4, "little"), (10).to_bytes(4, "little")))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path, content: path.write_bytes(b""), "not a zip file"),
        (lambda path, content: path.write_bytes(b"hello " * 1000), "not a zip file"),
        (lambda path, content: path.write_bytes(content[: len(content) // 2]), "not a zip file"),
        (
            lambda path, content: path.write_bytes(content[1000:]),
            "not a zip file made by|differs from|not have the length",
        ),
        (named("../../.bashrc"), r"a file in the archive is called '../../.bashrc'"),
        (named("/etc/passwd"), "a file in the archive is called"),
        (named("runs/../../x"), "a file in the archive is called"),
        (named("C:\\x"), "a file in the archive is called"),
        (named("runs/"), "a file in the archive is called"),
        (named("a" * 300), "a file in the archive is called"),
        (named("\x1b[31mred"), "a file in the archive is called"),
        (named("Notebook.md"), "Notebook.md is in the archive twice"),
        (named(MANIFEST), "manifest.json is in the archive twice"),
        (named("link", b"/etc/passwd", external_attr=(stat.S_IFLNK | 0o777) << 16), "link is not a regular file"),
        (named("fifo", external_attr=(stat.S_IFIFO | 0o777) << 16), "fifo is not a regular file"),
        (named("other", compress_type=zipfile.ZIP_LZMA), "uses a compression method"),
        (named("bomb", bytes(2**25 + 1)), "bomb has 33,554,433 bytes"),
        (named("more"), "more is not listed"),
        (disagreeing, "the records in the archive cannot be judged: ValueError"),
        (many, "more than 10,000 files"),
        (counted_as_few, "not a zip file|files"),
        (lies_about_its_size, "not a zip file|not have the length|not JSON"),
        (replaced(MANIFEST, b"[" * 1_000_000), "nested too deeply"),
        (replaced(MANIFEST, b'{"form": 1' + b"0" * 10_000 + b"}"), "not JSON"),
        (replaced(MANIFEST, b'{"form": "1"}'), "manifest.json: "),
        (replaced("searches.json", b"[]"), "searches.json: "),
        (replaced("description.json", b"{}"), "description.json: "),
        (replaced("runs/x.json", b"[[[[1]]]]"), "runs/x.json: "),
        (replaced(NOTEBOOK, b"```yaml claim=a\n```\n" * 2000), "cells, but at most"),
    ],
)
def test_a_hostile_file_is_refused_in_one_line(
    make: Callable[[Path, bytes], object], why: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "in" / "a.zip"
    path.parent.mkdir()
    make(path, content)
    with pytest.raises(ConfigError, match=why) as caught:
        verify(path)
    assert "\n" not in str(caught.value)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.zip", "in"], "nothing was written"


def test_a_pipe_or_a_folder_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none"):
        with pytest.raises(ConfigError):
            verify(path)


def test_what_takes_too_long_is_given_up(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "DEADLINE_S", 0.001)
    (path := tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ConfigError, match=r"takes more than 0\.001 s"):
        verify(path)


def locked(page: Page, tmp_path: Path) -> Path:
    """Of a notebook whose claim was softened after its runs: twice the updates are not at most 1.9 times, but 2.1."""
    nb = parse(PAGE + CLAIM)
    page.run(nb, "base", 1)
    page.run(nb, "slow", 2)
    path = page.workspace.root / "page.md"
    path.write_text(PAGE + CLAIM.replace("1.9", "2.1"), encoding="utf-8")
    reader = RunReader(page.workspace.tracking_uri())
    (found := tmp_path / "locked.zip").write_bytes(archive(page.workspace, reader, store.read(path), page.description))
    return found


def test_a_claim_that_was_changed_after_its_lock_has_both_verdicts(
    page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = locked(page, tmp_path)
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # whoever verifies it is elsewhere
    time.tzset()
    try:
        assert main(["verify", str(path)]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    printed = capsys.readouterr().out
    assert (
        "c: supported (for the claim as locked by its first run: refuted): updates to val/loss 0.5: at most 2.1"
        in printed
    )
    (claim,) = verify(path)[0].values()
    assert (claim.verdict, claim.locked) == ("supported", "refuted")
    assert claim.remarks[0].startswith(
        "This claim was changed after its first run (1970-01-02 00:00 UTC): at_most was 1.9."
    )
    assert "scalebook.claim" not in str(opened(path.read_bytes())["runs/" + first_run(path)])


def first_run(path: Path) -> str:
    return min(name for name in opened(path.read_bytes()) if name.startswith("runs/")).removeprefix("runs/")


@pytest.mark.parametrize("what", ["terms", "removed", "odd"])
def test_locks_that_are_not_what_was_archived_are_named(page: Page, tmp_path: Path, what: str) -> None:
    files = opened(locked(page, tmp_path).read_bytes())
    said = json.loads(files[LOCKS])
    for one in said.values():
        for entry in one["entries"]:
            if what == "odd":
                entry["began"] = one["first"] = 1e17  # no calendar has it
            entry["says"]["at_most"] = 2.1 if what == "terms" else 1.9
    changed = {**files, LOCKS: json.dumps({} if what == "removed" else said).encode()}
    if what == "odd":
        with pytest.raises(ConfigError, match="the records in the archive cannot be judged"):
            verify(zipped(changed, tmp_path / "odd.zip"))
        return
    with pytest.raises(ConfigError, match=f"{LOCKS} differs from what was archived"):
        verify(zipped(changed, tmp_path / "changed.zip", listed=False))
    differences = verify(zipped(changed, tmp_path / "listed.zip"))[1]
    assert differences[0] == 'c: locked: archived "refuted", now ""'


def test_an_archive_of_form_1_is_judged_as_it_was_then(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without looks, at 95 %, and with "not supported" for a claim that is refuted."""
    with monkeypatch.context() as patch:
        patch.setattr(EvidenceReader, "counts_looks", False)
        patch.setattr(archive_file, "_checked", lambda path, files, manifest: manifest)
        files = opened(locked(page, tmp_path).read_bytes())
    said = json.loads(files[MANIFEST].decode().replace('"refuted"', '"not supported"'))
    said["form"] = 1
    said["verdicts"]["c"]["remarks"] = ["In other words."]
    path = zipped({**files, MANIFEST: json.dumps(said).encode()}, tmp_path / "old.zip")
    verdicts, differences, notes, *_ = verify(path)
    notes = reworded(notes)
    assert (differences, len(notes)) == ([], 1)
    assert notes[0].startswith(
        'worded differently by the version of Scalebook that wrote the archive: c: remarks: archived ["In other '
        'words."]'
    )
    assert (verdicts["c"].verdict, verdicts["c"].locked) == ("supported", "refuted")
    said["form"] = 2
    path = zipped({**files, MANIFEST: json.dumps(said).encode()}, tmp_path / "newer.zip")
    assert 'c: locked: archived "not supported", now "refuted"' in verify(path)[1]


def test_an_archive_has_the_looks_up_to_it(page: Page, tmp_path: Path) -> None:
    path = locked(page, tmp_path)
    recorded = json.loads(opened(path.read_bytes())[LOCKS])
    assert all(len(one["looks"]) == 1 for one in recorded.values())
    assert verify(path)[1] == []


def test_a_notebook_with_locked_claims_is_exported(page: Page, tmp_path: Path) -> None:
    locked(page, tmp_path)
    assert main(["export", str(page.workspace.root / "page.md"), "--archive"]) == 0
    assert LOCKS in opened((page.workspace.root / "page.zip").read_bytes())
