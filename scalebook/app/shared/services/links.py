"""Deep links into MLflow's own pages (3.17; each opened in a browser by tests/e2e)."""

import json
from collections.abc import Sequence
from urllib.parse import quote, urlsplit


def _json(value: object) -> str:
    return quote(json.dumps(value, separators=(",", ":")))


def run(mlflow: str, experiment_id: str, run_id: str) -> str:
    """One run's page."""
    return f"{mlflow}/#/experiments/{experiment_id}/runs/{run_id}"


def experiment(mlflow: str, experiment_id: str) -> str:
    """The table of an experiment's runs; without the parameter MLflow opens its page for language models."""
    return f"{mlflow}/#/experiments/{experiment_id}/runs?workflowType=machine_learning"


def compare(mlflow: str, run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """MLflow's comparison of these runs; `experiment_ids` of all of them, each once."""
    return (
        f"{mlflow}/#/compare-runs?runs={_json(list(run_ids))}&experiments={_json(list(dict.fromkeys(experiment_ids)))}"
    )


def by_same_name(mlflow: str, page: str) -> str:
    """Our server by the name of this machine in the address `page`: 127.0.0.1 and localhost do not share cookies."""
    return mlflow.replace("//127.0.0.1:", "//localhost:", 1) if urlsplit(page).hostname == "localhost" else mlflow
