"""An order of MLflow's charts: what the model logs first, what we measure about runs folded up.

MLflow orders the sections of its charts by name, so `perf` and `ps` lie before `train` and `val`, and names without a
slash come last. The only other order that it takes is that of a shared view: a tag of the experiment, which an address
names. Sections that the view does not name come after those that it does. It is no *saved* one, with a name and a place
in the menu *Views*, since MLflow opens these in its pages for language models.
"""

import json
from typing import Any, Final

from scalebook.training.tracking import names

KEY: Final = "scalebook"
TAG: Final = f"mlflow.sharedViewState.{KEY}"
OPEN: Final = ("train", "Model metrics", "best", "final")
"""The second is what MLflow calls names without a slash: empty where a model has none, so not the first."""
FOLDED: Final = ("perf", "ps", "System metrics")


def charts(experiment: str) -> str:
    """The address of the experiment's charts in this order, on the server that shows MLflow's pages."""
    return (
        f"#/experiments/{experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={KEY}"
    )


def model_first() -> str:
    """The tag's value."""
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
    state = {"compareRunSections": sections, "compareRunCharts": left_out, "isAccordionReordered": True}
    return json.dumps(state)
