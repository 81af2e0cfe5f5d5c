"""Named views of the list of runs, kept in the workspace: what the list's address says after its question mark."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode

from scalebook.training.errors import ConfigError
from scalebook.training.files import records
from scalebook.training.workspace import Workspace

MOST: Final = 100
LONGEST_NAME: Final = 60
LONGEST_ADDRESS: Final = 8000
_LOCK = threading.Lock()  # of this server, between reading and replacing


@dataclass(frozen=True)
class SavedView:
    """`address`: of the list, such as `columns=params.lr&model=MLP`."""

    name: str
    address: str

    @property
    def parameters(self) -> dict[str, list[str]]:
        return parse_qs(self.address)


@dataclass(frozen=True)
class SavedViews:
    views: list[SavedView] = field(default_factory=list)


def file_of(workspace: Workspace) -> Path:
    return workspace.hidden / "views.json"


def all_views(workspace: Workspace) -> list[SavedView]:
    """By name; without what cannot be one. Raises Broken where the file is none of ours."""
    kept = records.load(file_of(workspace), SavedViews) or SavedViews()
    views = {view.name: view for view in kept.views if not problem(view)}
    return sorted(views.values(), key=lambda view: view.name.lower())[:MOST]


def save(workspace: Workspace, name: str, parameters: dict[str, list[str]]) -> None:
    """Keep a view, in place of one of the same name. ConfigError where it cannot be, or the file is broken."""
    view = SavedView(" ".join(name.split()), urlencode(parameters, doseq=True))
    if why := problem(view):
        raise ConfigError("view", why, "Choose another name." if view.name == "" or len(view.name) > LONGEST_NAME
                          else "Leave something out.")  # fmt: skip
    with _LOCK:
        others = [one for one in all_views(workspace) if one.name != view.name]
        if len(others) >= MOST:
            raise ConfigError("view", f"would be one of more than {MOST}", "Delete one first.")
        _write(workspace, [*others, view])


def delete(workspace: Workspace, name: str) -> None:
    with _LOCK:
        _write(workspace, [one for one in all_views(workspace) if one.name != name])


def _write(workspace: Workspace, views: list[SavedView]) -> None:
    workspace.create()
    records.save(file_of(workspace), SavedViews(views))


def problem(view: SavedView) -> str:
    """Why it is no view, "" where it is one: the file may be a stranger's."""
    if not view.name.strip() or not view.name.isprintable() or len(view.name) > LONGEST_NAME:
        return f"needs a name of 1 to {LONGEST_NAME} letters"
    if len(view.address) > LONGEST_ADDRESS:
        return f"has an address of more than {LONGEST_ADDRESS:,} letters"
    try:
        parse_qs(view.address, max_num_fields=MOST)
    except ValueError:
        return f"says more than {MOST} things"
    return ""
