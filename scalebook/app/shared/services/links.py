"""Deep links into MLflow's own pages (3.17; each opened in a browser by tests/e2e).

Each says `workflowType`: without it MLflow opens its pages for language models, which have no list of runs.
"""

import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlsplit

FOR_TRAINING: Final = "workflowType=machine_learning"


def _json(value: object) -> str:
    return quote(json.dumps(value, separators=(",", ":")))


def experiments(mlflow: str) -> str:
    """The list of all experiments. `mlflow` may be an address with a query, such as the one that opens our server."""
    return f"{mlflow}#/experiments?{FOR_TRAINING}" if "?" in mlflow else f"{mlflow}/#/experiments?{FOR_TRAINING}"


def run(mlflow: str, experiment_id: str, run_id: str) -> str:
    """One run's page."""
    return f"{mlflow}/#/experiments/{experiment_id}/runs/{run_id}?{FOR_TRAINING}"


def experiment(mlflow: str, experiment_id: str) -> str:
    """The table of an experiment's runs."""
    return f"{mlflow}/#/experiments/{experiment_id}/runs?{FOR_TRAINING}"


def compare(mlflow: str, run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """MLflow's comparison of these runs; `experiment_ids` of all of them, each once."""
    experiments_ = _json(list(dict.fromkeys(experiment_ids)))
    return f"{mlflow}/#/compare-runs?runs={_json(list(run_ids))}&experiments={experiments_}&{FOR_TRAINING}"


def by_same_name(mlflow: str, page: str) -> str:
    """Our server by the name of this machine in the address `page`: 127.0.0.1 and localhost do not share cookies."""
    return mlflow.replace("//127.0.0.1:", "//localhost:", 1) if urlsplit(page).hostname == "localhost" else mlflow
