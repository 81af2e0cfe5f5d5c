"""The store of a workspace, wherever that lies and whatever it is called."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names, notes, run_start
from scalebook.training.tracking.run_start import commit_of, create_run, experiment_id, open_store
from tests.shared_files import Prepared
from tests.training.runs import config, reader, submitted


def test_a_store_lies_in_its_workspace_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    name = "a?b per%20cent #[x] {y} 'q\" ö*"
    (tmp_path / name).mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    workspace = Workspace(tmp_path / name)
    client = open_store(workspace)
    run = create_run(client, experiment_id(client, workspace, "both ' and \""), "run", {"a": "b"}, {"c": 1})
    text = tmp_path / "text.txt"
    text.write_text("kept", encoding="utf-8")
    client.log_artifact(run, str(text))
    default = client.create_run("0").info.run_id  # MLflow's own experiment
    client.log_artifact(default, str(text))
    assert Path(client.download_artifacts(run, "text.txt")).read_text(encoding="utf-8") == "kept"
    assert sorted(os.listdir(tmp_path)) == sorted([name, "elsewhere", "text.txt"])
    assert os.listdir(tmp_path / "elsewhere") == []
    assert workspace.database.is_file()
    assert len(list(workspace.artifacts.rglob("text.txt"))) == 2


def test_a_run_that_ends_gives_its_experiments_list_columns_for_what_it_has_logged(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = prepared.into(Workspace(tmp_path))
    client = open_store(workspace)
    experiment = experiment_id(client, workspace, "lab", "lab.md")
    for metric in ("best/val_loss", "best/val_acc"):
        run = create_run(client, experiment, "run", {}, {})
        client.log_metric(run, metric, 1.0)
        run_start.terminated(client, run, "FINISHED", 5000)
        assert client.get_run(run).info.end_time == 5000
    columns = json.loads(client.get_experiment(experiment).tags[notes.VIEW_TAG])["selectedColumns"]
    assert [column for column in columns if "best/" in column] == ["metrics.`best/val_acc`", "metrics.`best/val_loss`"]


def test_mlflow_s_column_source_names_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would name the program that happened to make the run."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path)
    client = open_store(workspace)
    home = experiment_id(client, workspace, "lab")
    of_notebook = create_run(client, home, "one", {names.TAG_NOTEBOOK: "lab.md"}, {})
    by_hand = create_run(client, home, "two", {}, {})
    sources = [client.get_run(run).data.tags[names.TAG_SOURCE] for run in (of_notebook, by_hand)]
    assert sources == ["lab.md", "scalebook"]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True, env=environment)
    return done.stdout.decode().strip()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a folder of notebooks and a file outside of that."""
    monkeypatch.setattr(run_start, "GIT_LASTING_S", 0.0)
    root = tmp_path / "repo"
    (root / "lab").mkdir(parents=True)
    (root / "lab/models.py").write_text("x = 1\n", encoding="utf-8")
    (root / "other.py").write_text("y = 1\n", encoding="utf-8")
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    return root / "lab"


def test_the_commit_and_whether_files_of_the_folder_differ_from_it(lab: Path) -> None:
    head = git(lab, "rev-parse", "HEAD")
    (lab / "new.md").write_text("untracked", encoding="utf-8")
    (lab.parent / "other.py").write_text("y = 2\n", encoding="utf-8")
    assert commit_of(lab) == run_start.Commit(head, False), "of the folder alone, of what git knows"
    (lab / "models.py").write_text("x = 2\n", encoding="utf-8")
    assert commit_of(lab) == run_start.Commit(head, True)
    git(lab, "add", "models.py")
    assert commit_of(lab) == run_start.Commit(head, True), "what is staged is not committed either"
    git(lab, "commit", "-m", "second")
    assert commit_of(lab) == run_start.Commit(git(lab, "rev-parse", "HEAD"), False)
    git(lab, "worktree", "add", "-b", "other", str(lab.parent.parent / "beside"))
    (lab.parent.parent / "beside/lab/models.py").unlink()
    assert commit_of(lab.parent.parent / "beside/lab") == run_start.Commit(git(lab, "rev-parse", "HEAD"), True)


def test_where_there_is_none(tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init")
    assert commit_of(tmp_path / "empty") is None, "nothing is committed yet"
    monkeypatch.setattr(run_start, "which", lambda _: None)
    assert commit_of(lab) is None


def test_nothing_that_the_repository_names_is_run(lab: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $@ >> {ran}\ncat\n", encoding="utf-8")
    program.chmod(0o755)
    settings = (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "diff.external",
        "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
        "remote.origin.uploadpack", "gpg.program", "alias.status", "alias.rev-parse",
    )  # fmt: skip
    for setting in settings:
        git(lab, "config", setting, f"!{program}" if setting.startswith("alias") else str(program))
    git(lab, "config", "protocol.ext.allow", "always")
    git(lab, "config", "remote.origin.url", f"ext::{program}")
    git(lab, "config", "remote.origin.promisor", "true")
    git(lab, "config", "core.repositoryFormatVersion", "1")
    git(lab, "config", "extensions.partialClone", "origin")
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit"):
        (lab.parent / ".git/hooks").mkdir(exist_ok=True)
        (lab.parent / ".git/hooks" / hook).symlink_to(program)
    (lab.parent / ".gitattributes").write_text("* filter=evil diff=evil\n", encoding="utf-8")
    (lab / "models.py").write_text("x = 2\n", encoding="utf-8")
    tree = git(lab, "rev-parse", "HEAD:lab")
    found = commit_of(lab)
    assert found is not None
    assert found.changed is True
    (lab.parent / ".git/objects" / tree[:2] / tree[2:]).unlink()  # git would fetch what is missing
    found = commit_of(lab)
    assert found is not None
    assert found.changed is not False
    assert not ran.exists(), ran.read_text(encoding="utf-8")
    index = lab.parent / ".git/index"
    before = index.stat().st_mtime_ns
    os.utime(lab / "models.py")
    commit_of(lab)
    assert index.stat().st_mtime_ns == before, "nothing of the repository is written"


def test_a_git_that_does_not_answer_is_not_waited_for(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setattr(run_start, "which", lambda _: str(slow))
    monkeypatch.setattr(run_start, "GIT_DEADLINE_S", 0.2)
    assert commit_of(lab) is None


def test_a_run_has_the_commit_and_whether_files_differ_from_it(
    lab: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = prepared.into(Workspace(lab))
    for uncommitted in ("no", "yes"):
        tags = reader(workspace).run(submitted(workspace, config()).id).tags
        commit = (tags["mlflow.source.git.commit"], tags["scalebook.uncommitted"])
        assert commit == (git(lab, "rev-parse", "HEAD"), uncommitted)
        (lab / "models.py").write_text("x = 2\n", encoding="utf-8")
