"""Descriptions of runs and experiments in MLflow: the user's text, and below it links back to Scalebook's pages.

Addresses and ports change with each start, so a link names neither: it stays on the server of MLflow's pages, which
redirects to Scalebook's (`app/serving/mlflow_server.py`). On another server these links do not work; the last sentence
says so.
"""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from scalebook.training.base import HIDDEN
from scalebook.training.tracking import names

PREFIX: Final = "/scalebook"
"""Prefix of Scalebook's paths on MLflow's server."""
WHERE: Final = (
    "These links work while `scalebook ui` shows this page. To use them elsewhere, start `scalebook ui` in the "
    f"notebook's folder (the one with `{HIDDEN}` in it)."
)
KEY: Final = "scalebook"
VIEW_TAG: Final = f"mlflow.sharedViewState.{KEY}"
OPEN: Final = ("train", "Model metrics", "best", "final")
"""The second is MLflow's section for names without a slash: it may be empty, so it is not the first."""
FOLDED: Final = ("perf", "ps", "System metrics")
PARAMETERS_SHOWN: Final = ("strategy", "rule", "workers", "batch_global", "lr", "clock")
FIRST_COLUMNS: Final = ("attributes.`Run Name`", "runDateAndNestInfo", "duration")
"""What MLflow shows first in any case."""
MOST_COLUMNS: Final = 12
"""Of best values; the tag of an experiment takes 5,000 characters."""
SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+.!|~=-])")


def trials_experiment(of: str, search: str) -> str:
    """The name of the MLflow experiment of a search's trials. It is not the experiment `of` the notebook, where trials
    would bury the single runs; and it begins otherwise, since MLflow's pages cut names."""
    return f"trials of {search}: {of}"


def of_run(run_id: str, notebook: str | None, trials: str = "") -> str:
    """The description of a run. If it is a search's own run, `trials` is the id of the MLflow experiment of its
    trials."""
    parts = [f"[This run in Scalebook]({PREFIX}/run/{run_id})"]
    if notebook is not None:
        parts.append(f"[its notebook]({PREFIX}/run/{run_id}/notebook)")
    if trials:
        where = quote(f"tags.mlflow.parentRunId = '{run_id}'")
        parts.append(f"[its trials](#/experiments/{trials}/runs?workflowType=machine_learning&searchFilter={where})")
    return f"{' · '.join(parts)}\n\n{WHERE}"


def of_experiment(experiment: str, notebook: str | None, search: str = "") -> str:
    """The description of a notebook's MLflow experiment, or of that of a search's trials. `notebook` is a file name."""
    order = f"[Table of strategies, rates and times]({table(experiment)}). "
    order += f"[Charts, with the model's metrics first]({charts(experiment)})."
    if notebook is None:
        kind = f"Trials of the search {_plain(search)}" if search else "Runs"
        return f"{kind} started from the command line, not from a notebook. {order}"
    stem = Path(notebook).stem
    cell = f"?{urlencode({'cell': search})}" if search else ""
    link = f"[{_plain(stem)}]({PREFIX}/notebook/{quote(stem, safe='')}{cell})"
    if search:
        return f"Trials of the search {_plain(search)} of the notebook {link}. {order}\n\n{WHERE}"
    others = "The trials of each search are in a separate experiment with the name of the search."
    return f"Runs of the notebook {link}. {order} {others}\n\n{WHERE}"


def split_note(content: str, run_id: str) -> tuple[str, str]:
    """Split a run's description into the user's text and Scalebook's part; both may be ""."""
    start = content.find(f"[This run in Scalebook]({PREFIX}/run/{run_id})")
    end = content.find(WHERE, start) if start >= 0 else -1
    if end < 0:
        return content, ""
    end += len(WHERE)
    return f"{content[:start].rstrip()}\n\n{content[end:].strip()}".strip(), content[start:end]


def join_note(said: str, ours: str) -> str:
    """The inverse of `split_note`."""
    return f"{said}\n\n{ours}" if said and ours else said or ours


def _plain(name: str) -> str:
    """A name that is text in Markdown, whatever signs it has."""
    return SPECIAL.sub(r"\\\1", escape(name, quote=False))


def charts(experiment: str) -> str:
    """The path of the experiment's charts in Scalebook's order, on the server of MLflow's pages."""
    return (
        f"#/experiments/{experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={KEY}"
    )


def table(experiment: str) -> str:
    """The path of the experiment's list of runs with Scalebook's columns."""
    return f"#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={KEY}"


def columns(metrics: Sequence[str] = ()) -> list[str]:
    """The columns of the list of runs, as MLflow calls them: of the strategy, then of times, then of the best values of
    what the models log. `metrics`: those of a run, or columns that were there before. MLflow leaves out columns that no
    run has."""
    best = [name for name in metrics if name.startswith(names.BEST)]
    training = names.own_training_loss(metrics) or names.TRAIN_LOSS
    measured = [*names.COMPARED, names.UPDATES_PER_SECOND, names.SAMPLES_PER_SECOND]
    chosen = dict.fromkeys([*measured, *(sorted(best)[:MOST_COLUMNS] or [training])])
    return [
        *(f"params.`{name}`" for name in PARAMETERS_SHOWN),
        *(f"metrics.`{name}`" for name in chosen),
        f"tags.`{names.TAG_WORKERS_LOST}`",
    ]


def with_metrics(view: str, metrics: Iterable[str]) -> str:
    """The value of VIEW_TAG with columns for these metrics of a run too."""
    try:
        before = json.loads(view)["selectedColumns"]
    except (ValueError, KeyError, TypeError):
        before = []
    before = [column[len("metrics.`") : -1] for column in before if str(column).startswith("metrics.`")]
    return model_first(dict.fromkeys([*before, *metrics]))


def model_first(metrics: Iterable[str] = ()) -> str:
    """The value of VIEW_TAG: it has the columns of the list of runs, and orders the charts, with the model's metrics
    first, and those that measure the run folded up.

    MLflow takes columns from a shared view: a tag of the experiment that an address names (`table`). A person's own
    choice is kept in the browser, where nobody else can set it. MLflow orders sections of charts by name, so `perf` and
    `ps` come before `train` and `val`, and names without a slash last; a shared view orders them too. Sections that the
    view does not name come after those that it does. It is not a *saved* view, with an entry in the menu *Views*:
    MLflow opens these in its pages for language models.
    """
    sections = [
        {"uuid": f"scalebook-{name}", "name": name, "display": name in OPEN, "isReordered": False}
        for name in (*OPEN, *FOLDED)
    ]
    left_out: list[dict[str, Any]] = [
        {
            "type": "LINE", "uuid": f"scalebook-{axis}", "metricKey": axis, "metricSectionId": sections[1]["uuid"],
            "isGenerated": True, "deleted": True,
        }
        for axis in names.AXES
    ]  # fmt: skip
    chosen = columns([*metrics])
    state = {
        "compareRunSections": sections, "compareRunCharts": left_out, "isAccordionReordered": True,
        "selectedColumns": chosen, "columnOrder": [*FIRST_COLUMNS, *chosen],
    }  # fmt: skip
    return json.dumps(state)
