"""Deep links into MLflow's own pages (3.17; tests/e2e opens each in a browser).

Each has `workflowType`: without it MLflow opens its pages for language models, which have no list of runs.
"""

import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

FOR_TRAINING: Final = "workflowType=machine_learning"


def _json(value: object) -> str:
    return quote(json.dumps(value, separators=(",", ":")))


def experiments(mlflow: str) -> str:
    """The list of all experiments. `mlflow` may have a query string, such as the token of our server."""
    return f"{mlflow}#/experiments?{FOR_TRAINING}" if "?" in mlflow else f"{mlflow}/#/experiments?{FOR_TRAINING}"


def run(mlflow: str, experiment_id: str, run_id: str) -> str:
    """One run's page."""
    return f"{mlflow}/#/experiments/{experiment_id}/runs/{run_id}?{FOR_TRAINING}"


def experiment(mlflow: str, experiment_id: str) -> str:
    """The table of an experiment's runs."""
    return f"{mlflow}/#/experiments/{experiment_id}/runs?{FOR_TRAINING}"


def compare(mlflow: str, run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """MLflow's comparison of these runs. `experiment_ids`: those of the runs."""
    experiments_ = _json(list(dict.fromkeys(experiment_ids)))
    return f"{mlflow}/#/compare-runs?runs={_json(list(run_ids))}&experiments={experiments_}&{FOR_TRAINING}"


def trials(mlflow: str, experiment_id: str, search_id: str) -> str:
    """The table of a search's trials."""
    where = quote(f"tags.mlflow.parentRunId = '{search_id}'")
    return f"{experiment(mlflow, experiment_id)}&searchFilter={where}"
