import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.app.navigation import NOTEBOOK, RUNS
from scalebook.training.base.files import record_folder
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import end_notices
from scalebook.training.jobs.end_notices import Ending
from tests.app.pages.conftest import Open, html, run_names
from tests.app.recorded import record
from tests.training.jobs.fake_nvml import FakeGpu, FakeNvml, Put, eight

pytestmark = pytest.mark.long


def test_no_run_says_what_to_do(open_page: Open) -> None:
    assert "No run yet" in html(open_page("runs"))


def test_runs_stand_in_a_table_newest_first(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a", seed=1)
    last = record(workspace, cell="a", seed=2, state="failed")
    table = open_page("runs").dataframe[0].value
    assert table["name"][0] == f"/runs?called=a+%C2%B7+seed+2&run={last.id}"
    assert run_names(table) == ["a · seed 2", "a · seed 1"]
    assert [list(one) for one in table["state"]] == [["failed"], ["finished"]]
    assert table["remark"][0].startswith("worker lost: worker 1 died")
    assert round(table["best"][1], 3) == 2.047


def test_a_filter_that_fits_nothing_says_so(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="a", seed=1)
    app = open_page("runs")
    app.text_input(key="find").set_value("zebra").run()
    assert "No matching run" in html(app)
    app.text_input(key="find").set_value("").run()
    app.selectbox(key="state").select("failed").run()
    assert "No matching run" in html(app)


def test_a_waiting_run_says_why_and_can_be_stopped(open_page: Open, workspace: Workspace) -> None:
    job = record(workspace, cell="a", seed=1, state="waiting")
    app = open_page("runs", run=job.id)
    assert "no supervisor is running" in str(app.get("progress")[0].proto.text)
    assert next(one for one in app.button if one.label == "Stop").disabled is False


def test_the_list_says_how_many_more_wait_and_stops_them_all(open_page: Open, workspace: Workspace) -> None:
    jobs = [record(workspace, cell="a", seed=seed, state="waiting") for seed in range(1, 12)]
    app = open_page("runs")
    links = {one.proto.label: one.proto.query_string for one in app.get("page_link")}
    assert len([label for label in links if label.startswith("a ")]) == 8
    assert links["3 more runs wait. Show them"] == "state=waiting"
    eighth = app.get("page_link")[7].proto.query_string.removeprefix("run=")
    assert not app.button(key=f"later-{eighth}").disabled, "others wait behind it"
    app.button(key="stop-all-runs").click().run()
    assert not app.exception
    assert [one.value for one in app.toast] == ["Asked 11 runs to stop."]
    assert all(job.stop_request() is not None for job in jobs)


@pytest.mark.thorough
def test_the_order_of_those_that_wait_is_changed_by_buttons(open_page: Open, workspace: Workspace) -> None:
    record(workspace, cell="live", state="running")
    a, b, c = (record(workspace, cell=cell, state="waiting") for cell in "abc")

    def shown(app: AppTest) -> list[str]:
        return [one.proto.label for one in app.get("page_link")]

    app = open_page("runs")
    assert shown(app) == [f"{cell} · seed 1" for cell in ("live", "a", "b", "c")]
    assert [
        app.button(key=f"{way}-{job.id}").disabled for way, job in (("earlier", a), ("later", a), ("later", c))
    ] == [
        True,
        False,
        True,
    ]
    app.button(key=f"earlier-{c.id}").click().run()
    assert shown(app) == [f"{cell} · seed 1" for cell in ("live", "a", "c", "b")]
    app.button(key=f"later-{a.id}").click().run()
    assert shown(app) == [f"{cell} · seed 1" for cell in ("live", "c", "a", "b")]
    assert not app.button(key=f"later-{a.id}").disabled
    assert b.queued().created > a.queued().created > c.queued().created


@pytest.mark.sampled
@pytest.mark.parametrize("count", [0, 1, 8])
def test_devices_are_shown_with_who_holds_them(
    count: int, open_page: Open, workspace: Workspace, nvml: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml([FakeGpu("GPU-hot", busy=25, used_mb=4096, heat=88), *eight()[1:]][:count])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    job = record(workspace, cell="live", state="running")
    small = record(workspace, cell="small", state="running")
    small.write(replace(small.request(), gpu_share=0.25))
    record_folder._kept.cache_clear()  # what was asked never changes, elsewhere
    for one, cores in ((job, [1, 0]), (small, [2])):
        gpus = ["GPU-hot"] if count and (one is job or count == 1) else ["GPU-1"] if count else []
        one.write(replace(one.started() or pytest.fail("it runs"), cores=cores, gpus=gpus))
    app = open_page("runs")
    assert "Held by" not in html(app)  # nobody looks while it is closed
    app.session_state["devices"] = True
    app.run()
    shown = html(app)
    held = '<td class="">0</td>' if count else ""
    assert re.search(rf'run={job.id}">[^<]*</a></td><td class="">0, 1</td>{held}', shown)
    held = f'<td class="">{min(count, 2) - 1} \\(25%\\)</td>' if count else ""
    assert re.search(rf'run={small.id}">[^<]*</a></td><td class="">2</td>{held}', shown)
    free = {0: "", 1: '<td class="">–</td>', 8: '<td class="">2, 3, 4, 5, 6, 7</td>'}[count]
    assert f'<td class="dim">free</td><td class="">3</td>{free}' in shown
    assert ("<th" in shown and "GPUs" in shown) == bool(count)
    if count:
        assert '<td class="">0 · NVIDIA H100</td><td class="num">25%</td><td class="num">4.0 of 79.6</td>' in shown
        assert "88 (hot)" in shown
    assert shown.count("· NVIDIA H100") == count


def test_what_a_gpu_lacks_is_said_among_the_devices(
    open_page: Open, nvml: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml([FakeGpu("GPU-a"), FakeGpu("GPU-b", lost=True)])
    app = open_page("runs")
    app.session_state["devices"] = True
    app.run()
    assert "GPU 1 is left out: NVML reports GPU is lost." in [one.value for one in app.caption]
    nvml(error=FakeNvml.MISMATCH)
    app.run()
    assert any(
        one.value.startswith(
            "No GPU is used, because this machine has a driver that fails (NVML: Driver/library version"
        )
        for one in app.caption
    )


def test_what_ends_while_a_page_is_open_is_told_to_the_browser(open_page: Open, workspace: Workspace) -> None:
    end_notices.add(workspace, Ending("run", "a" * 32, "before", "finished", 1.0))
    app = open_page("runs")
    assert 'class="sb-bell"' in html(app)
    assert 'class="sb-ending"' not in html(app)
    end_notices.add(workspace, Ending("search", "b" * 32, "<find>", "finished", 2.0, 60.0))
    app.run()
    assert (f'<span class="sb-ending" data-id="{"b" * 32}-2" data-url="/search?search={"b" * 32}">'
            "Scalebook: &lt;find&gt; finished after 1 min") in html(app)  # fmt: skip
    app.run()
    assert 'class="sb-ending"' not in html(app)


@pytest.mark.sampled
@pytest.mark.parametrize("told", ["²", "१२", "1e9", "-1", "9" * 400, "3", "1;--"])
def test_any_page_that_an_address_asks_for_shows_the_runs(open_page: Open, workspace: Workspace, told: str) -> None:
    record(workspace, seed=1)
    assert "No run" not in html(open_page("runs", page=told))


@pytest.mark.sampled
@pytest.mark.parametrize("text", ["both ' and \"", "back\\", "tick`", "100%", "a;b -- c", "new\nline", "x" * 5000])
def test_any_text_can_be_looked_for(open_page: Open, workspace: Workspace, text: str) -> None:
    record(workspace, seed=1)
    assert "No matching run" in html(open_page("runs", find=text))


def test_a_store_of_another_mlflow_is_said(open_page: Open, workspace: Workspace) -> None:
    with closing(sqlite3.connect(workspace.database)) as store:
        store.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        store.commit()
    (said,) = open_page("runs").error
    assert f"sqlite:///{workspace.database}: was written by a newer MLflow than " in said.value


def test_the_way_back_to_a_notebook_keeps_its_address(open_page: Open, workspace: Workspace) -> None:
    """The list has a filter that is called as the parameter of other pages."""
    for name in ("a", "b"):
        (workspace.root / f"{name}.md").write_text(f"---\ntitle: {name.upper()}\n---\n", encoding="utf-8")
    app = open_page("", notebook="a")
    app.switch_page(RUNS.script).run()
    app.query_params["notebook"] = "b"
    app.switch_page(NOTEBOOK.script).run()
    assert not app.exception
    assert app.query_params["notebook"] == "b"
    assert app.title[0].value == "B"
