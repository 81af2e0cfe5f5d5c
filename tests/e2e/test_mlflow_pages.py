"""Three strategies and a search of a person's own package, read in MLflow's own pages as our links open them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from scalebook.app.shared import links
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.e2e.conftest import ROOT, Served, end_supervisor, serve
from tests.training.odd_lab import FILES, NOTEBOOK

STEM = Path(NOTEBOOK).stem
STRATEGIES = {
    "single": "{max_epochs: 2, accelerator: cpu}",
    "ddp": "{max_epochs: 2, accelerator: cpu, devices: 2, strategy: ddp}",
    "async": "{max_epochs: 2, accelerator: cpu, strategy: {class_path: AsyncPS, init_args: {workers: 2}}}",
}
PARAMETERS = {
    "strategy": ["single", "ddp", "AsyncPS"],
    "rule": ["none", "none", "async"],
    "workers": ["1", "2", "2"],
    "lr": ["0.05"] * 3,
    "clock": ["real"] * 3,
}
"""Of the three, as MLflow's comparison has them."""
METRIC = "Prüfung/mittlerer Fehler"
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
objective: {{{METRIC}: min}}
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


@pytest.mark.thorough  # 100 s; links, parameters, descriptions and where trials lie have tests of their own
@pytest.mark.timeout(600)
def test_strategies_are_compared_in_mlflow_and_lead_back(browser: Browser, lab: Served, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(SHOWN_MS)
    lab.let_in(context)
    try:
        journey(context.new_page(), lab, tmp_path)
    finally:
        context.close()


def journey(page: Page, lab: Served, pictures: Path) -> None:
    recorded = RunReader(lab.workspace.tracking_uri()).runs()
    runs = {run.cell or "": run for run in recorded if names.TAG_TRIAL not in run.tags}
    mlflow, home = str(lab.addresses.mlflow), runs["single"].experiment_id
    opened(page, links.experiments(mlflow), STEM)
    page.get_by_role("button", name="Close", exact=True).click()  # the Assistant, which opens once in each browser
    steps: dict[str, Callable[[], None]] = {
        "list": lambda: own_runs_are_not_buried(page, mlflow, home),
        "columns": lambda: the_list_has_strategies_and_times(page, mlflow, home),
        "order": lambda: what_the_model_logs_comes_first(page, mlflow, home, pictures),
        "chart": lambda: strategies_are_an_axis(page, mlflow, home),
        "compare": lambda: three_are_compared(page, mlflow, runs),
        "workers": lambda: workers_filter(page, mlflow, home),
        "run": lambda: a_run_leads_back(page, mlflow, runs["async"], lab),
        "system": lambda: a_short_run_says_what_it_took(page, mlflow, runs["single"]),
        "trials": lambda: a_search_leads_to_its_trials(page, mlflow, runs["raten"]),
    }
    for name, step in steps.items():
        try:
            step()
        finally:
            page.context.pages[-1].screenshot(path=pictures / f"mlflow-{name}.png")


def opened(page: Page, address: str, name: str) -> None:
    """Only what is behind `#` changes from page to page: without the blank one between, MLflow keeps what it shows."""
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_text(name, exact=True).first).to_be_visible()


def lists(page: Page, *runs: str) -> None:
    """That these runs, and no others, are in MLflow's list."""
    expect(page.get_by_text(f"{len(runs)} matching runs")).to_be_visible()
    for run in runs:
        expect(page.get_by_role("link", name=run, exact=True)).to_be_visible()


def picked(page: Page, box: Locator, *names: str) -> None:
    """These are chosen in one of MLflow's lists, in the list's order: only what is in sight of it is in the page."""
    box.click()
    options = page.locator(".rc-virtual-list-holder:visible")
    for name in names:
        option = options.get_by_title(name, exact=True)
        options.hover()
        for _ in range(60):
            if option.count():
                break
            page.mouse.wheel(0, 100)
            page.wait_for_timeout(100)  # it draws what has come into sight
        option.click()
    page.keyboard.press("Escape")


def axes(within: Page | Locator, *words: str) -> None:
    """That the drawing of parallel coordinates has these titles and categories."""
    plot = within.locator("svg")
    for word in words:
        expect(plot.get_by_text(word, exact=True).first).to_be_visible()
    expect(plot.get_by_text("unknown", exact=True)).to_have_count(0)


def own_runs_are_not_buried(page: Page, mlflow: str, home: str) -> None:
    opened(page, links.experiment(mlflow, home), "raten")
    lists(page, "seed 1: async", "seed 1: ddp", "raten", "seed 1: single")
    expect(page.get_by_text(f"Runs of the notebook {STEM}.")).to_be_visible()
    expect(page.get_by_text("Welcome to MLflow Assistant")).to_have_count(0)


def workers_filter(page: Page, mlflow: str, home: str) -> None:
    opened(page, links.experiment(mlflow, home), "raten")
    search = page.get_by_placeholder("metrics.rmse")
    search.fill('params.workers = "2"')
    search.press("Enter")
    lists(page, "seed 1: async", "seed 1: ddp")


def the_list_has_strategies_and_times(page: Page, mlflow: str, home: str) -> None:
    """By the link in the experiment's description; a click opens another tab."""
    opened(page, links.experiment(mlflow, home), "raten")
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="Table of strategies, rates and times").click()
    listed = opening.value
    for column in ("strategy", "rule", "workers"):
        expect(listed.get_by_role("columnheader", name=column, exact=True).first).to_be_visible()
    expect(listed.get_by_text("AsyncPS", exact=True).first).to_be_visible()
    listed.close()


def what_the_model_logs_comes_first(page: Page, mlflow: str, home: str, pictures: Path) -> None:
    """By the link in the experiment's description. MLflow itself orders by name, and has `perf` before `train`."""
    opened(page, links.experiment(mlflow, home), "raten")
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="Charts, with the model's metrics first").click()
    charts = opening.value
    expect(charts.get_by_text("train/loss", exact=True).first).to_be_visible()
    sections = charts.locator("[role=button][aria-expanded]")
    shown = [text.split("\n")[0] for text in sections.all_inner_texts()]
    known = ["train", "Model metrics", "best", "final", "perf", "ps", "System metrics"]
    assert [name for name in shown if name in known] == known
    for name, is_open in (("train", "true"), ("perf", "false"), ("ps", "false")):
        section = sections.filter(has_text=name).first
        expect(section).to_have_attribute("aria-expanded", is_open)
    expect(charts.get_by_text("samples", exact=True)).to_have_count(0)
    charts.screenshot(path=pictures / "mlflow-order-charts.png")
    charts.close()


def strategies_are_an_axis(page: Page, mlflow: str, home: str) -> None:
    opened(page, f"{links.experiment(mlflow, home)}&compareRunsMode=CHART", METRIC)
    page.get_by_role("button", name="Add chart").first.click()
    page.get_by_role("menuitem", name="Parallel coordinates").click()
    dialog = page.get_by_role("dialog")
    _, parameters, metrics = (dialog.get_by_role("combobox").nth(place) for place in range(3))
    picked(page, parameters, "lr", "strategy", "workers")
    picked(page, metrics, f"best/{METRIC}")
    dialog.get_by_role("button", name="Add chart").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("Parallel Coordinates", exact=True)).to_be_visible()
    axes(page, "lr", "strategy", "workers", *PARAMETERS["strategy"])


def three_are_compared(page: Page, mlflow: str, runs: dict[str, RunRecord]) -> None:
    three = [runs[name] for name in STRATEGIES]
    address = links.compare(mlflow, [run.id for run in three], [run.experiment_id for run in three])
    opened(page, address, "Run details")
    expect(page.get_by_text("Comparing 3 Runs from 1 Experiment")).to_be_visible()
    picked(page, page.get_by_role("combobox").nth(0), "workers")
    axes(page, "rule", "strategy", "workers", *PARAMETERS["strategy"])
    rows = [[cell.inner_text().strip() for cell in row.locator("td, th").all()] for row in page.locator("tr").all()]
    table = {name: values for name, *values in filter(None, rows)}
    assert {name: table[name] for name in PARAMETERS} == PARAMETERS
    metrics, values = (grid.get_by_role("rowgroup").locator("> div") for grid in page.get_by_role("grid").all()[:2])
    place = metrics.all_inner_texts().index(f"best/{METRIC}")
    shown = values.all_inner_texts()[place * len(three) : (place + 1) * len(three)]
    assert shown == [f"{run.metrics[f'best/{METRIC}']:.3g}" for run in three]


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
    page.get_by_role("tab", name="Artifacts").click()
    expect(page.get_by_text(names.MODULES, exact=True)).to_be_visible()
    page.get_by_text(names.MODULES, exact=True).click()
    page.get_by_text("punkte.py", exact=True).click()
    expect(page.get_by_text("class Punkte").first).to_be_visible()


def a_short_run_says_what_it_took(page: Page, mlflow: str, run: RunRecord) -> None:
    opened(page, links.run(mlflow, run.experiment_id, run.id), "Description")
    page.get_by_role("tab", name="System metrics").click()
    for metric in ("cpu_utilization_percentage", "system_memory_usage_megabytes", "peak_memory_megabytes"):
        expect(page.get_by_text(metric, exact=True).first).to_be_visible()


def a_search_leads_to_its_trials(page: Page, mlflow: str, search: RunRecord) -> None:
    opened(page, links.run(mlflow, search.experiment_id, search.id), "Description")
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="its trials").click()
    lists(opening.value, *(f"trial {number}, seed 1: raten" for number in range(TRIALS)))
