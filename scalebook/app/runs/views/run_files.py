"""Below a run's curves, one at a time: config, log, files, the other runs of its experiment, what it ran under."""

from functools import partial
from typing import Any

import streamlit as st

from scalebook.app import resources
from scalebook.app.runs.components import run_files as component
from scalebook.app.runs.services import run_files, runs, since
from scalebook.app.runs.services.runs import RunView
from scalebook.training.config.renamed import renewed
from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml
from scalebook.training.files.reading import written
from scalebook.training.jobs.parts import part_folders
from scalebook.training.tracking import names

MOST_CONFIG = 2**24  # bytes
TABS = ("Config", "Log", "Files", "Other runs", "Environment")


def show(run_id: str) -> None:
    """The tabs; of a failed run the log is in front."""
    view = runs.view(resources.workspace(), resources.reader().run(run_id), resources.waiting_reasons)
    draws = (_config, _log, _files, _others, _environment)
    with st.container(key="live-files"):
        front = "Log" if view.state == "failed" else "Config"
        tabs = st.tabs(TABS, default=front, key="files", bind="query-params")
    for tab, draw in zip(tabs, draws, strict=True):
        if tab.open:
            with tab:
                draw(view)


def _config(view: RunView) -> None:
    component.config(config_text(view))


def _files(view: RunView) -> None:
    component.files(run_files.files(resources.reader(), view.id, view.job))


def _others(view: RunView) -> None:
    others = runs.views(resources.workspace(), since.others(resources.reader(), view.record), resources.waiting_reasons)
    component.others(others, view.id, view.record.tags.get(names.TAG_CONFIG_HASH, ""))


def _environment(view: RunView) -> None:
    component.environment(view.record)


def _log(view: RunView) -> None:
    job, failed = view.job, view.state == "failed"
    looked_for = component.log_box(
        partial(written, job.log, run_files.MOST_BYTES) if job and job.log.exists() else None, f"{view.title}-log"
    )
    if looked_for and job:
        component.log_lines(*run_files.found_in(job.log, looked_for))
    else:
        component.log(job.tail() if job else "", failed)
    for machine, part in (part_folders(job) if job else {}).items():
        component.other_log(machine, part.tail())


def config_text(view: RunView) -> str:
    """The config that ran, of the job's folder or the store; "" where neither has it."""
    job = view.job
    if job and job.config.exists():
        return written(job.config, MOST_CONFIG).decode("utf-8", "replace")
    return resources.config_text(view.record)


def config_of(view: RunView) -> dict[str, Any] | None:
    """The same, read; None where it cannot be."""
    try:
        config = yaml.load(config_text(view))
    except ConfigError:
        return None
    return renewed(config)[0] if isinstance(config, dict) else None
