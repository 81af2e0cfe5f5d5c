import json
import re
import time
import zipfile
from dataclasses import asdict
from threading import Event, current_thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app import resources
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs import job_requests, usage
from scalebook.training.jobs.begin_request import RayHandle, part_names
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.gpus import GpuReading
from scalebook.training.jobs.job_folder import JobStart, LostWorker, Result
from scalebook.training.jobs.job_nodes import part_folders
from scalebook.training.jobs.usage import GpuWorker, Usage
from scalebook.training.notebook import store
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
from scalebook.training.tracking.worker_figures import WorkerFile
from tests.app import searches
from tests.app.pages.conftest import Open, codes, html, number, words
from tests.app.recorded import config, record, write_pushes
from tests.training.benches import wait_for

pytestmark = pytest.mark.long


def test_a_failed_run_names_cause_and_remedy(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, seed=3, state="failed")
    app = open_page("runs", run=job.id)
    assert "Worker lost." in app.error[0].value
    assert "Worker 1 died: pid 4711, SIGKILL." in app.error[0].value
    assert "Find the cause in the log" in app.error[0].value
    assert buttons(app) == ["Run again", "Duplicate"]
    with zipfile.ZipFile(job.path / "last.ckpt", "w") as checkpoint:
        checkpoint.writestr("data.pkl", "")
    app.run()
    assert buttons(app) == ["Resume", "Run again", "Duplicate"]


def test_a_run_whose_model_seeds_itself_is_marked(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    assert not open_page("runs", run=job.id).warning
    open_store(workspace).set_tag(job.id, names.TAG_OWN_SEED, "42")
    assert "manual_seed itself, with the seed 42" in open_page("runs", run=job.id).warning[0].value


def test_a_run_that_lost_a_worker_is_marked_on_its_page_and_in_the_list(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    open_store(workspace).set_tag(job.id, names.TAG_WORKERS_LOST, "worker 1 died")
    assert open_page("runs", run=job.id).warning[0].value == "Worker 1 died. The log has the details."
    assert list(open_page("runs").dataframe[0].value["remark"]) == ["worker 1 died"]
    live = record(workspace, seed=2, state="running")
    live.note_lost(LostWorker(1, 0.0, "killed", 24, restarted=True))
    assert "Worker 1 died at 1970-01-01" in open_page("runs", run=live.id).warning[0].value


def buttons(app: AppTest) -> list[str]:
    return [one.label for one in app.button if one.label in ("Stop", "Resume", "Run again", "Duplicate")]


def test_a_run_that_its_search_pruned_is_pruned_on_its_page_and_in_the_list(
    open_page: Open, workspace: Workspace
) -> None:
    job = record(workspace, state="stopped")
    job.write(
        Result("stopped", time.time(), cause="pruned at 960 samples, because other trials were better at that point")
    )
    open_store(workspace).set_tag(job.id, names.TAG_TRIAL_STATE, "pruned")
    app = open_page("runs", run=job.id)
    assert 'class="sb-chip sb-pruned">pruned<' in html(app)
    assert "The search pruned this run." in app.info[0].value
    assert "other trials were better at that point" in app.info[0].value
    assert list(open_page("runs", trials="1").dataframe[0].value["state"]) == ["pruned"]


@pytest.mark.parametrize(
    ("state", "shown"), [("finished", ["Run again", "Duplicate"]), ("running", ["Stop", "Duplicate"])]
)
def test_an_ended_run_can_be_run_again(open_page: Open, workspace: Workspace, state: str, shown: list[str]) -> None:
    assert buttons(open_page("runs", run=record(workspace, state=state).id)) == shown


def test_run_again_leads_to_a_new_run_with_the_same_config(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "ensure", lambda _: None)
    job = record(workspace, seed=3, state="stopped", config_hash="abcdefabcdef")
    app = open_page("runs", run=job.id)
    assert "This run was stopped. It had not started." in app.info[0].value
    assert "never started" in html(app)
    next(one for one in app.button if one.label == "Run again").click().run()
    (new,) = [one for one in job_requests.all_jobs(workspace) if one.id != job.id]
    assert app.query_params["run"] == new.id
    asked = new.request()
    assert (asked.seed, asked.cell, asked.config_hash, asked.resumed_from) == (
        3,
        "pixelcnn-async-2",
        "abcdefabcdef",
        None,
    )
    assert new.content()["model"]["class_path"] == "scalebook.training.zoo.models.PixelCNN"


def test_an_error_in_a_person_s_own_code_comes_with_its_line_first(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, state="failed")
    job.log.write_text(
        "begins\ngoes on\nTraceback (most recent call last):\n  File deep\nValueError: no\n", encoding="utf-8"
    )
    frame = 'File "/home/me/bad.py", line 17, in training_step\n    raise ValueError("no")'
    job.write(
        Result("failed", 1.0, "error in the model's code", "ValueError at bad.py:17: no", "Mend it.", frame=frame)
    )
    app = open_page("runs", run=job.id)
    assert app.error[0].value == "**Error in the model's code:** ValueError at bad.py:17: no.\n\nMend it."
    shown = codes(app)
    assert shown[0] == frame
    assert "begins\ngoes on" in shown
    assert any(one.startswith("Traceback (most recent") for one in shown)
    assert "Earlier output: 2 lines" in [one.label for one in app.expander]


def test_a_finished_run_shows_figures_curves_config_and_log(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    app = open_page("runs", run=job.id)
    assert "<span>best val/bits_per_dim</span><b>2.047</b>" in html(app)
    assert len(app.get("plotly_chart")) == 3  # bits, loss, throughput
    assert "staleness 1: 300 pushes, 71.4%" in html(app)
    assert any("scalebook.training.zoo.models.PixelCNN" in one for one in codes(app))
    assert any("epoch 1: val/bits_per_dim 2.4" in one for one in codes(open_page("runs", run=job.id, files="Log")))
    assert "mean staleness" in html(app)
    assert [words in html(app) for words in ("peak memory", "1.5 GB", "1.75 GB")] == [True] * 3


def tab(app: AppTest, label: str) -> Any:
    return next(one for one in app.tabs if one.label == label)


@pytest.mark.thorough
def test_a_run_offers_its_files_its_whole_log_and_the_other_runs_of_its_experiment(
    open_page: Open, workspace: Workspace
) -> None:
    older = record(workspace, seed=1, config_hash="1" * 12)
    job = record(workspace, seed=1, state="failed")
    record(workspace, seed=1, cell="another experiment")
    job.log.write_text("".join(f"line {i}\n" for i in range(1, 1001)) + "Loss is NaN at 7\n", encoding="utf-8")
    (job.path / "checkpoints").mkdir()
    (job.path / "checkpoints" / "last.ckpt").write_bytes(b"x" * 1500)
    app = open_page("runs", run=job.id)
    shown = tab(open_page("runs", run=job.id, files="Files"), "Files")
    assert [one.value for one in shown.markdown] == ["`last.ckpt` · checkpoint", "`config.yaml`", "`pushes.json`",
                                                     "`staleness.json`"]  # fmt: skip
    assert "1.5 kB" in "".join(one.proto.body for one in shown.get("html"))
    assert [one.label for one in shown.download_button] == ["Download"] * 4
    assert codes(tab(app, "Log"))[0].startswith("line 802\n")
    app.text_input(key="find-in-log").set_value("nan").run()
    assert codes(tab(app, "Log")) == ["1001  Loss is NaN at 7"]
    assert any(one.value == "1 of 1,001 lines" for one in app.caption)
    app = open_page("runs", run=job.id, files="Other runs")
    others = "\n".join(one.proto.body for one in tab(app, "Other runs").get("html"))
    assert f'href="/runs?run={older.id}"' in others
    assert others.count("seed 1") == 2
    assert "seed 1 (this one)" in others
    assert (others.count(">the same<"), others.count(">another<")) == (1, 1)


def test_a_run_on_two_machines_shows_the_log_of_each(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    handle = RayHandle(ProcessId(7, 1, "boot"), "a", "agent", str(job.path), parts=part_names(job.id, ["a", "b"]))
    job.write(JobStart(handle, 1.0, [0], machine="a", others=[Allocation("b", [1])]))
    part = part_folders(job)["b"]
    part.path.mkdir(parents=True)
    part.log.write_text("told on b\n", encoding="utf-8")
    shown = tab(open_page("runs", run=job.id, files="Log"), "Log")
    assert [one.label for one in shown.expander] == ["Log of b"]
    assert "told on b" in codes(shown)[-1]


@pytest.mark.thorough
def test_a_runs_page_waits_for_no_look_at_the_modules(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a start of the server: it takes seconds, behind the page, which then says what it could not before."""
    app = open_page("runs", run=record(workspace, seed=1, what=config(workers=3, lr=0.01)).id)
    for kept in workspace.cache.glob("describe-*.json"):
        kept.rename(kept.with_suffix(".aside"))
    resources.look_anew()
    lookers: list[str] = []
    looked = Event()

    def look(_: Workspace) -> None:
        lookers.append(current_thread().name)
        assert looked.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "describe", look)
        app.run()
        assert "<span>best val/bits_per_dim</span><b>2.047</b>" in html(app)
        assert "has changed since" not in html(app)
        app.run()
        assert lookers == [resources.LOOKING], "one look for all who draw"
        looked.set()
        wait_for(lambda: all(thread.name != resources.LOOKING for thread in enumerate_threads()), "the look to end")
    for aside in workspace.cache.glob("describe-*.aside"):
        aside.rename(aside.with_suffix(".json"))
    assert "The experiment has changed since this run: trainer.devices was 3 and is now 2; " in html(app.run())


@pytest.mark.thorough
def test_a_stale_run_says_what_has_changed_since(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, seed=1, what=config(workers=3, lr=0.01))
    shown = html(open_page("runs", run=job.id))
    assert "The experiment has changed since this run: trainer.devices was 3 and is now 2; " in shown
    assert "optimizer.lr was 0.01 and is now 0.001." in shown
    cell = store.read(workspace.root / "first-steps.md").notebook.experiments()[0]
    fresh = record(workspace, seed=1, config_hash=config_hash(Experiment.read(cell.config, describe(workspace))))
    assert "has changed since" not in html(open_page("runs", run=fresh.id))
    (workspace.root / "first-steps.md").unlink()
    assert "has changed since" not in html(open_page("runs", run=job.id))


@pytest.mark.thorough
def test_any_metrics_are_drawn_also_in_one_chart_and_smoothed(open_page: Open, workspace: Workspace) -> None:
    app = open_page("runs", run=record(workspace).id)
    shown, rate = [charts(app)[i]["data"][0]["name"] for i in range(2)], names.per_worker(names.SAMPLES_PER_SECOND, 0)
    assert shown == ["val/bits_per_dim", "train/loss"]
    app.slider(key="smooth").set_value(0.6).run()
    assert [len(one["data"]) for one in charts(app)] == [2, 2, 2]  # the last is of the two workers
    app.multiselect(key="metrics").set_value(["train/loss", rate]).run()
    app.toggle(key="together").set_value(True).run()
    first = charts(app)[0]["data"]
    assert [line["name"] for line in first] == ["train/loss"] * 2 + [rate] * 2
    assert [line["opacity"] for line in first] == [0.38, 1.0, 0.38, 1.0]
    assert len(charts(app)) == 2


def test_a_run_shows_what_it_takes_of_the_machine(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    for i in range(3):
        sample = Usage(2.0 * i, 1.5, 500.0 + i, [GpuReading("GPU-a", 0.5, 900.0, 60.0)])
        with usage.file_of(job).open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")
    drawn = {one["layout"]["title"]["text"]: one["data"] for one in charts(open_page("runs", run=job.id))}
    assert drawn["CPU cores busy"][0]["y"] == [1.5] * 3
    assert drawn["memory of all processes, MB"][0]["y"] == [500.0, 501.0, 502.0]
    assert drawn["GPU busy, %"][0]["y"] == [50.0] * 3
    assert drawn["GPU temperature, °C"][0]["x"] == [0.0, 2.0, 4.0]


@pytest.mark.thorough
def test_a_run_shows_what_each_worker_takes_of_its_gpu(open_page: Open, workspace: Workspace) -> None:
    """What NVML does not tell is said to be unknown."""
    job = record(workspace)
    readings = [GpuReading(uuid, 0.5, 900.0, 60.0) for uuid in ("GPU-a", "GPU-b")]

    def sampled(busy: float | None) -> list[GpuWorker]:
        places = [("GPU-b", "worker 10"), ("GPU-a", "worker 0"), ("GPU-b", "worker 2")]
        return [GpuWorker(uuid, name, busy, 100.0 * i) for i, (uuid, name) in enumerate(places)]

    def write(workers: list[GpuWorker]) -> None:
        sample = Usage(2.0, 1.5, 500.0, readings, workers)
        usage.file_of(job).write_text(json.dumps(asdict(sample)) + "\n")

    def drawn(app: AppTest) -> dict[str, list[tuple[str, float]]]:
        told = {one["layout"]["title"]["text"]: one["data"] for one in charts(app)}
        return {title: [(line["name"], line["y"][0]) for line in lines] for title, lines in told.items()}

    write(sampled(0.25))
    app = open_page("runs", run=job.id)
    names_ = ["worker 0, GPU 0", "worker 2, GPU 1", "worker 10, GPU 1"]
    assert drawn(app)["GPU utilization by worker, %"] == [(name, 25.0) for name in names_]
    assert drawn(app)["GPU memory by worker, MB"] == list(zip(names_, [100.0, 200.0, 0.0], strict=True))
    assert not [one.value for one in app.caption if "Unknown" in one.value]
    write(sampled(None))
    (said,) = [one.value for one in app.run().caption if "Unknown" in one.value]
    assert said.startswith("Unknown: GPU utilization by worker, %. NVML does not report these values here")
    write([])
    (said,) = [one.value for one in app.run().caption if "Unknown" in one.value]
    assert said.startswith("Unknown: GPU utilization by worker, %; GPU memory by worker, MB. NVML")


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


@pytest.mark.thorough
def test_a_living_run_shows_what_its_workers_did_so_far(open_page: Open, workspace: Workspace) -> None:
    """From the files in its folder, which are newer than what MLflow has."""
    job = record(workspace, state="running", workers=3)
    app = open_page("runs", run=job.id)
    assert "<span>latest val/bits_per_dim</span>" in html(app)
    assert "final" not in html(app)
    told = re.findall(r"<span>([^<]+)</span><div><i style=\"width:([\d.]+)%[^>]*title=\"compute", html(app))
    assert told == [("all", "51.02"), ("worker 0", "38.46"), ("worker 1", "65.22"), ("worker 2", "38.46")]
    table = html(app)
    assert table.count('<td class="">worker 2</td>') == 3  # over all shards, then by shard
    assert '<th class="num">mean age, ms</th>' in table
    write_pushes(job.path, 60, 3)
    app.run()
    assert html(app).count('<td class="num">420</td>') == 9


@pytest.mark.thorough
def test_throughput_is_read_from_the_file_of_workers(open_page: Open, workspace: Workspace) -> None:
    """In the job's folder where that is here, among the artifacts else; before the metrics of earlier versions."""
    job = record(workspace)
    file, rate = WorkerFile(job.path), names.per_worker(names.SAMPLES_PER_SECOND, 1)
    for updates in (40, 80):
        file.add({names.UPDATES: updates, names.SAMPLES: 32 * updates, names.SECONDS: 1}, {rate: 7.0 + updates})

    def drawn() -> Any:
        return next(line for line in charts(open_page("runs", run=job.id))[-1]["data"] if line["name"] == "worker 1")

    assert (drawn()["x"], drawn()["y"]) == ([40, 80], [47, 87])
    open_store(workspace).log_artifact(job.id, str(file.path))
    file.path.unlink()
    assert drawn()["y"] == [47, 87]


def test_who_came_and_left_is_told(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    path = job.path / names.PUSHES_JSON
    told = json.loads(path.read_text())
    at = time.time() - 300
    first = [{"worker": worker, "at": at, "joined": True} for worker in (0, 1)]
    path.write_text(json.dumps({**told, "comings": first}))
    app = open_page("runs", run=job.id)
    assert "Workers that joined and left" not in [one.value for one in app.header]
    later = [{"worker": 2, "at": at + 60, "joined": True}, {"worker": 1, "at": at + 120, "joined": False}]
    path.write_text(json.dumps({**told, "comings": [*first, *later]}))
    app.run()
    assert "Workers that joined and left" in [one.value for one in app.header]
    assert "worker 1 left 3 min ago · worker 2 joined 4 min ago" in [one.value for one in app.caption]


def test_an_ended_run_whose_folder_is_gone_shows_what_the_store_has(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    for name in (names.STALENESS_JSON, names.PUSHES_JSON):
        (job.path / name).unlink()
    app = open_page("runs", run=job.id)
    assert len(app.get("plotly_chart")) == 3
    assert html(app).count('<td class="num">210</td>') == 6


def test_an_unknown_run_is_said_to_be_unknown(open_page: Open) -> None:
    assert "No such run" in words(open_page("runs", run="0" * 32))


def test_a_run_is_duplicated_into_the_form(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace)
    app = open_page("runs", run=job.id)
    next(one for one in app.button if one.label == "Duplicate").click().run()
    assert any("AsyncPS" in one for one in codes(app))
    assert number(app, "Workers").value == 2


def test_a_trial_leads_back_to_its_search_and_is_not_in_the_list(open_page: Open, workspace: Workspace) -> None:
    search = searches.spec()
    parent = searches.folder(workspace, search, searches.records(search, trials=3))
    job = record(workspace, cell="batch-size")
    store = open_store(workspace)
    store.set_tag(job.id, names.TAG_PARENT, parent.id)
    store.set_tag(job.id, names.TAG_TRIAL, "2")
    assert "No run yet" in html(open_page("runs"))
    back, home = (one.proto for one in open_page("runs", run=job.id).get("page_link")[:2])
    assert home.label == "First steps › batch-size (this cell is gone)"
    assert (back.label, back.query_string) == ("batch-size, trial 2", f"search={parent.id}")


def test_a_run_names_its_notebook_and_cell_and_leads_to_both(open_page: Open, workspace: Workspace) -> None:
    def links(**what: str) -> list[tuple[str, str]]:
        shown = open_page("runs", run=record(workspace, seed=1, **what).id)  # type: ignore[arg-type]  # texts only
        return [(one.proto.label, one.proto.query_string) for one in shown.get("page_link")]

    cell = ("First steps › pixelcnn-async-2", "notebook=first-steps&cell=pixelcnn-async-2")
    assert links()[0] == cell
    assert links(cell="gone")[0] == ("First steps › gone (this cell is gone)", "notebook=first-steps")
    assert [label for label, _ in links(notebook="no-more.md")] == ["All runs"]


@pytest.mark.thorough
def test_virtual_workers_are_called_so_alone_and_beside_real_ones(open_page: Open, workspace: Workspace) -> None:
    real = record(workspace, cell="real")
    virtual = record(workspace, cell="virtual", workers=64)
    open_store(workspace).set_tag(virtual.id, names.TAG_CLOCK, names.VIRTUAL)
    open_store(workspace).log_metric(virtual.id, names.GRADIENTS_PER_UPDATE, 16.0)
    open_store(workspace).log_metric(real.id, names.GRADIENTS_PER_UPDATE, 1.02)
    app = open_page("runs", run=virtual.id)
    assert ">virtual workers</span>" in html(app)
    assert "<span>updates/virtual s</span><b>65.0</b>" in html(app)
    assert "<span>gradients per update</span><b>16.0</b>" in html(app)
    assert "gradients per update" not in html(open_page("runs", run=real.id)), "one each, and what was under way"
    assert names.time_words([True]) in [one.value for one in app.caption]
    assert "The first 16 of 64 workers are shown; all are in `pushes.json`, under Files." in [
        one.value for one in app.caption
    ]
    app = open_page("compare", runs=f"{real.id},{virtual.id}")
    assert names.time_words([True, False]) in [one.value for one in app.caption]
    assert html(app).count("65.0 virtual") == 1
