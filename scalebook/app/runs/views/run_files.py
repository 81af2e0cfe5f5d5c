"""Below a run's curves, one at a time: config, log, files, the other runs of its experiment, what it ran under."""

from typing import Any

import streamlit as st

from scalebook.app import resources
from scalebook.app.runs.components import run_files as component
from scalebook.app.runs.services import run_files, runs, since
from scalebook.app.runs.services.runs import RunView
from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml
from scalebook.training.tracking import names

TABS = ("Config", "Log", "Files", "Other runs", "Environment")


def show(run_id: str) -> None:
    """The tabs; of a failed run the log is in front."""
    workspace, reader = resources.workspace(), resources.reader()
    view = runs.view(workspace, reader.run(run_id), resources.waiting_reasons)
    failed = view.state == "failed"
    with st.container(key="live-files"):
        config_tab, log_tab, files_tab, others_tab, about_tab = st.tabs(TABS, default="Log" if failed else "Config")
        with config_tab:
            component.config(config_text(view))
        with log_tab:
            _log(view, failed)
        with files_tab:
            component.files(run_files.files(reader, run_id, view.job))
        with others_tab:
            others = runs.views(workspace, since.others(reader, view.record), resources.waiting_reasons)
            component.others(others, run_id, view.record.tags.get(names.TAG_CONFIG_HASH, ""))
        with about_tab:
            component.environment(view.record)


def _log(view: RunView, failed: bool) -> None:
    job = view.job
    looked_for = component.log_box(job.log.read_bytes if job and job.log.exists() else None, f"{view.title}-log")
    if looked_for and job:
        component.log_lines(*run_files.found_in(job.log, looked_for))
    else:
        component.log(job.tail() if job else "", failed)


def config_text(view: RunView) -> str:
    """The config that ran, of the job's folder or the store; "" where neither has it."""
    job = view.job
    if job and job.config.exists():
        return job.config.read_text(encoding="utf-8", errors="replace")
    return resources.config_text(view.record)


def config_of(view: RunView) -> dict[str, Any] | None:
    """The same, read; None where it cannot be."""
    try:
        config = yaml.load(config_text(view))
    except ConfigError:
        return None
    return config if isinstance(config, dict) else None
