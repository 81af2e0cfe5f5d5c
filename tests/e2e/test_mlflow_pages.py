"""Three strategies and a search of a person's own package, read in MLflow's own pages as our links open them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from scalebook.app.shared.services import links
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader, RunRecord
from scalebook.training.trust import trust
from scalebook.training.workspace import Workspace
from tests.e2e.conftest import ROOT, Served, end_supervisor, serve
from tests.odd_lab import FILES, NOTEBOOK

STEM = Path(NOTEBOOK).stem
STRATEGIES = {
    "single": "{max_epochs: 2, accelerator: cpu}",
    "ddp": "{max_epochs: 2, accelerator: cpu, devices: 2, strategy: ddp}",
    "async": "{max_epochs: 2, accelerator: cpu, strategy: {class_path: AsyncPS, init_args: {workers: 2}}}",
}
EXPERIMENT = """
```yaml experiment={name}
config:
  model: mein_paket.netze.Linie
  data: punkte.Punkte
  trainer: {trainer}
```
"""
TRIALS = 6
SEARCH = f"""
```yaml search=raten
experiment: single
objective: {{Prüfung/mittlerer Fehler: min}}
trials: {TRIALS}
sampler: random
space: {{model.lr: {{log_uniform: [0.001, 0.5]}}}}
```
"""
RUN_S = 150.0
SHOWN_MS = 30_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Served]:
    """The notebook has run, and its search; then the app is served."""
    root = tmp_path / "Meine Größen"
    cells = [EXPERIMENT.format(name=name, trainer=trainer) for name, trainer in STRATEGIES.items()]
    for name, text in {**FILES, NOTEBOOK: "".join(["# Größe\n", *cells, SEARCH])}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    workspace = Workspace(root)
    trust(workspace)
    for command in ("notebook", "search"):
        words = (sys.executable, "-P", "-m", "scalebook", command, "run", str(root / NOTEBOOK))
        subprocess.run(words, cwd=ROOT, check=True, timeout=RUN_S, capture_output=True)
    served = serve(workspace, cwd=root)
    yield served
    served.end()
    end_supervisor(workspace)


@pytest.mark.thorough  # 60 s; links, parameters, descriptions and where trials lie have tests of their own
@pytest.mark.timeout(600)
def test_strategies_are_compared_in_mlflow_and_lead_back(browser: Browser, lab: Served) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(SHOWN_MS)
    lab.let_in(context)
    page = context.new_page()
    runs = {run.cell or "": run for run in RunReader(lab.workspace.tracking_uri()).runs() if "trial" not in run.name}
    mlflow, home = str(lab.addresses.mlflow), runs["single"].experiment_id
    own_runs_are_not_buried(page, mlflow, home)
    workers_filter(page, mlflow, home)
    strategies_are_an_axis(page, mlflow, home)
    three_are_compared(page, mlflow, runs)
    a_run_leads_back(page, mlflow, runs["async"], lab)
    a_search_leads_to_its_trials(page, mlflow, runs["raten"])
    context.close()


def opened(page: Page, address: str, name: str) -> None:
    """A new page each time: MLflow keeps what it has been told in the same one. A picture is left for `--output`."""
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_text(name, exact=True).first).to_be_visible(timeout=SHOWN_MS)


def lists(page: Page, *runs: str) -> None:
    """That these runs, and no others, are in MLflow's list."""
    expect(page.get_by_text(f"{len(runs)} matching runs")).to_be_visible()
    for run in runs:
        expect(page.get_by_text(run, exact=True).first).to_be_visible()


def own_runs_are_not_buried(page: Page, mlflow: str, home: str) -> None:
    opened(page, links.experiment(mlflow, home), "raten")
    lists(page, "async seed 1", "ddp seed 1", "raten", "single seed 1")
    expect(page.get_by_text(f"Runs of the notebook {STEM}.")).to_be_visible()


def workers_filter(page: Page, mlflow: str, home: str) -> None:
    where = quote('params.workers = "2"')
    opened(page, f"{links.experiment(mlflow, home)}&searchFilter={where}", "ddp seed 1")
    lists(page, "async seed 1", "ddp seed 1")


def strategies_are_an_axis(page: Page, mlflow: str, home: str) -> None:
    opened(page, f"{links.experiment(mlflow, home)}&compareRunsMode=CHART", "async seed 1")
    page.get_by_role("button", name="Add chart").first.click()
    page.get_by_role("menuitem", name="Parallel coordinates").click()
    dialog = page.get_by_role("dialog")
    for box, picked in ((0, ("strategy", "workers", "lr")), (1, ("best/Prüfung/mittlerer Fehler",))):
        dialog.get_by_role("combobox").nth(box).click()
        for name in picked:
            page.get_by_role("option", name=name, exact=True).click()
        page.keyboard.press("Escape")
    expect(dialog.get_by_text("AsyncPS").first).to_be_visible()
    for word in ("ddp", "single", "workers", "lr"):
        expect(dialog.get_by_text(word, exact=True).first).to_be_visible()
    expect(dialog.get_by_text("unknown", exact=True)).to_have_count(0)


def three_are_compared(page: Page, mlflow: str, runs: dict[str, RunRecord]) -> None:
    three = [runs[name] for name in STRATEGIES]
    address = links.compare(mlflow, [run.id for run in three], [run.experiment_id for run in three])
    opened(page, address, "Comparing 3 Runs from 1 Experiment")
    table = {
        row[0]: row[1:]
        for line in page.locator("tr").all()
        if (row := [cell.inner_text().strip() for cell in line.locator("th, td").all()])
    }
    assert table["strategy"] == ["single", "ddp", "AsyncPS"]
    assert table["workers"] == ["1", "2", "2"]
    assert table["clock"] == ["real"] * 3
    best = [f"{run.metrics['best/Prüfung/mittlerer Fehler']:.3g}" for run in three]
    assert [f"{float(value):.3g}" for value in table["best/Prüfung/mittlerer Fehler"]] == best


def a_run_leads_back(page: Page, mlflow: str, run: RunRecord, lab: Served) -> None:
    opened(page, links.run(mlflow, run.experiment_id, run.id), "Description")
    expect(page.get_by_text("These links work while")).to_be_visible()
    for name, leads in (
        ("This run in Scalebook", f"/runs?run={run.id}"),
        ("its notebook", "/?notebook=Gr%C3%B6%C3%9Fe"),
    ):
        with page.context.expect_page() as opening:
            page.get_by_role("link", name=name).click()
        opening.value.wait_for_url(f"{lab.addresses.app}{leads}**")
        expect(opening.value.get_by_text("async" if "runs" in leads else "raten").first).to_be_visible()
        opening.value.close()
    page.get_by_role("tab", name="System metrics").click()
    expect(page.get_by_text("System metrics (2)")).to_be_visible()
    page.get_by_role("tab", name="Artifacts").click()
    expect(page.get_by_text(names.MODULES, exact=True)).to_be_visible()
    page.get_by_text(names.MODULES, exact=True).click()
    page.get_by_text("punkte.py", exact=True).click()
    expect(page.get_by_text("class Punkte").first).to_be_visible()


def a_search_leads_to_its_trials(page: Page, mlflow: str, search: RunRecord) -> None:
    opened(page, links.run(mlflow, search.experiment_id, search.id), "Description")
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="its trials").click()
    lists(opening.value, *(f"raten trial {number} seed 1" for number in range(TRIALS)))
