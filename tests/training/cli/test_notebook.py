"""`scalebook notebook` as a person calls it: checks, a real run, a failing run, Ctrl+C."""

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from mlflow import MlflowClient

from scalebook.training.base.files import machine_errors
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import notebook_run
from scalebook.training.cli.main import main as scalebook
from scalebook.training.cli.notebook import main
from scalebook.training.cli.notebook_run import wait_for_record
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.notebook.parse import parse
from tests.shared_files import Prepared
from tests.training.benches import clear
from tests.training.interrupting import hearing

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "notebooks").glob("*.md"))
SECONDS_LONG = ("fewer-bytes", "staleness", "stragglers")
"""With searches of many points, each of which is checked."""
DEADLINE_S = 110

PAGE = """# Page

```yaml experiment=good
config:
  trainer: {devices: 1, max_epochs: 2, accelerator: cpu}
  model: {class_path: MLPClassifier}
  data: {class_path: Digits, init_args: {batch_size: 64}}
```

```yaml experiment=bad
config:
  trainer: {devices: 1, max_epochs: 1, accelerator: cpu}
  model: {class_path: PixelCNN}
  data: {class_path: Digits, init_args: {normalize: true}}
```

```yaml experiment=endless
config:
  trainer: {devices: 1, max_epochs: 100000, accelerator: cpu}
  model: {class_path: MLPClassifier}
  data: {class_path: Digits}
```

```yaml comparison=all
runs: [good, bad]
metric: val/accuracy
x: [updates, samples, seconds]
target: 0.5
```
"""


@pytest.fixture(scope="module")
def notebook_file(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Path]:
    """A notebook in a workspace whose supervisor stays until the module's tests are done."""
    workspace = prepared.into(Workspace(tmp_path_factory.mktemp("workspace")))
    path = workspace.root / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    with hold_supervisor(workspace):
        yield path
    clear(workspace)  # it would stay for another 30 s


def _run(notebook_file: Path, *cells: str) -> subprocess.CompletedProcess[str]:
    """The command within this process, which has imported all that it needs."""
    chosen = [word for cell in cells for word in ([cell] if cell.startswith("-") else ["--cell", cell])]
    words = ["notebook", "run", str(notebook_file), *chosen]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = scalebook(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def ids(notebook_file: Path) -> set[str]:
    """Of all jobs of its workspace."""
    return {job.id for job in all_jobs(Workspace(notebook_file.parent))}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.thorough] if path.stem in SECONDS_LONG else [])
        for path in SHIPPED
    ],
)
def test_every_shipped_notebook_is_right(
    path: Path, tmp_path: Path, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared.into(Workspace(tmp_path))
    copy = Path(shutil.copy(path, tmp_path))
    assert main(["check", str(copy)]) == 0
    out = capsys.readouterr().out
    assert "no problems" in out or "no errors" in out
    text = path.read_text(encoding="utf-8")
    assert parse(text).text == text


def test_problems_are_lines_with_places(notebook_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = notebook_file.with_name("wrong.md")
    wrong.write_text(PAGE.replace("max_epochs: 2", "max_epoch: 2").replace("[good, bad]", "[goood]"), encoding="utf-8")
    before = ids(notebook_file)
    assert main(["check", str(wrong)]) == 2
    assert main(["run", str(wrong)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"{wrong}:5: good: trainer\.max_epoch: .*\. Did you mean `max_epochs`\?", lines[0])
    assert lines[1].startswith(f"{wrong}:25: all: runs.0: there is no experiment goood")
    assert lines[2:] == lines[:2]
    assert ids(notebook_file) == before  # nothing is started
    wrong.unlink()


@pytest.mark.parametrize("address", ["'ray-head:6379'", "7"])
def test_a_notebook_is_checked_whatever_its_folder_says_of_a_cluster(
    tmp_path: Path, prepared: Prepared, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scalebook.toml").write_text(f"[cluster]\naddress = {address}\n", encoding="utf-8")
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    prepared.into(Workspace(tmp_path))
    assert scalebook(["notebook", "check", str(tmp_path / "page.md")]) == 0
    assert "no problems" in capsys.readouterr().out
    assert scalebook(["notebook", "run", str(tmp_path / "page.md")]) == 2
    assert "but you do not trust this folder" in capsys.readouterr().err


def test_a_full_disk_is_said_in_one_line_and_at_once(
    notebook_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (machine_errors, notebook_run):
        monkeypatch.setattr(module, "disk_problem", lambda folder: "the disk of /data is full (0.0 MB left)")
    assert scalebook(["notebook", "run", str(notebook_file)]) == 2
    errors = capsys.readouterr().err
    (line,) = errors.splitlines()
    assert line.startswith(f"scalebook: error: {notebook_file.parent.resolve() / '.scalebook'}: cannot be written to")
    assert line.endswith("(the disk of /data is full (0.0 MB left)). Free disk space, then try again.")
    began = time.monotonic()
    assert wait_for_record(Workspace(notebook_file.parent), ["unknown"]) == 0
    assert time.monotonic() - began < notebook_run.RECORD_DEADLINE_S / 2


def test_an_unknown_cell_or_file_is_said_in_one_line(notebook_file: Path) -> None:
    done = _run(notebook_file, "god")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scalebook: error: --cell: god is not an experiment of this notebook. Did you mean `good`?\n"
    assert _run(notebook_file.with_name("none.md")).returncode == 2


def test_searches_have_a_command_of_their_own(notebook_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = PAGE.split("```")[1].replace("max_epochs: 2", "max_epochs: 1")
    search = "```yaml search=find\nexperiment: good\nobjective: val/loss\nspace: {model.hidden: {int: [8, 9]}}\n```\n"
    page = notebook_file.with_name("searching.md")
    page.write_text(f"```{experiment}```\n\n{search}", encoding="utf-8")
    assert main(["check", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: 1 experiment, 1 search and 0 comparisons, no problems\n"
    named = _run(page, "find")
    assert named.returncode == 2
    assert named.stderr.endswith("does not run. Use `scalebook search run FILE.md --cell find`.\n")
    before = ids(page)
    done = _run(page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(
        f"1 search is not run by this command. Use `scalebook search run {page} --cell find`.\n"
    )
    made = [job for job in all_jobs(Workspace(page.parent)) if job.id not in before]
    assert [job.request().cell for job in made] == ["good"]
    page.write_text(
        search.replace("experiment: good", "config: {model: MLPClassifier, data: Digits}"), encoding="utf-8"
    )
    only = _run(page)
    assert (only.returncode, "has only searches, no experiments" in only.stderr) == (2, True)


def test_a_run_prints_progress_comparison_and_what_failed(notebook_file: Path) -> None:
    done = _run(notebook_file, "good", "bad")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"good seed 1  .{10}  100 %  finished +accuracy 0\.\d+ +46 updates", done.stdout)
    assert "1 of 2 runs finished" in done.stdout
    assert re.search(r"bad seed 1 failed\. configuration: .*normalize.* Log: `scalebook jobs log \w{8}`\.", done.stdout)
    assert re.search(r"^good +one process +1 x 64 +0\.002 +0\.\d+ +23 +1,437 ", done.stdout, re.MULTILINE)
    assert "bad: 0 of 1 runs, failed (configuration:" in done.stdout
    good = _run(notebook_file, "good")
    assert good.returncode == 0, good.stdout + good.stderr
    before = ids(notebook_file)
    again = _run(notebook_file, "good", "--stale")
    assert again.stdout.startswith("Nothing is stale, because every seed has finished")
    assert (again.returncode, ids(notebook_file)) == (0, before)
    other = _run(notebook_file, "good", "--stale", "--seeds=2")
    assert "1 of 1 runs finished" in other.stdout  # seed 1 had finished


@pytest.mark.thorough
def test_ctrl_c_stops_the_runs_and_says_so(notebook_file: Path) -> None:
    command = [sys.executable, "-u", "-m", "scalebook", "notebook", "run", str(notebook_file), "--cell", "endless"]
    with hearing():
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    seen = ""
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                seen += line
                if "running" in line:
                    process.send_signal(signal.SIGINT)
                    break
            rest = process.communicate(timeout=DEADLINE_S)[0]
        finally:
            process.kill()
    assert process.returncode == 130, seen + rest
    assert "Interrupted: stopping 1 run" in rest
    assert "Stopped 1 run." in rest
    (job,) = [job for job in all_jobs(Workspace(notebook_file.parent)) if job.request().cell == "endless"]
    assert job.state() == "stopped"


def test_ends_that_mlflow_is_told_late_are_waited_for_and_one_that_it_is_never_told_is_counted(
    tmp_path: Path, prepared: Prepared
) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    client = MlflowClient(workspace.tracking_uri())
    late, never = (client.create_run("0").info.run_id for _ in range(2))
    teller = threading.Timer(0.5, client.set_terminated, [late])
    teller.start()
    assert wait_for_record(workspace, [late, "unknown"]) == 0
    teller.join()
    assert wait_for_record(workspace, [late, never], deadline_s=0.3) == 1
