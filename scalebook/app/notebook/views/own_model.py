"""Using a model of one's own: a module that lies in the folder, or a new one from a template."""

from collections.abc import Callable
from html import escape
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared import dialogs, html
from scalebook.app.shared.widgets import press_button
from scalebook.training.config import found_modules
from scalebook.training.config.found_modules import FoundModule
from scalebook.training.config.naming_modules import name_module, write_template
from scalebook.training.errors import ConfigError
from scalebook.training.trust import trusted
from scalebook.training.workspace import SETTINGS

TITLE = "Use my own model"
TEMPLATE = "template-module"
SUGGESTED = "my_model"


def ask() -> NoReturn:
    """Opens the dialog."""
    dialogs.ask(TITLE, _draw, "large")


def _draw() -> None:
    workspace = resources.workspace()
    named = workspace.settings.modules
    st.markdown(
        f"Any LightningModule and LightningDataModule works. `{SETTINGS}` names the modules that hold them; "
        "their classes then appear in **New experiment**."
    )
    modules = found_modules.found(workspace)
    st.subheader("Found in this folder")
    if not modules:
        st.caption(
            f"No Python file in `{workspace.root}` defines one yet. Copy yours there and open this dialog again."
        )
    for module in modules:
        _module(module, is_named=module.name in named)
    st.subheader("Start from a template")
    st.caption("A working file with a small model and its data. Replace both by yours.")
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        name = st.text_input("File name, without .py", SUGGESTED, key="template-name").strip()
    with right:
        wanted = press_button("Create file", TEMPLATE, name, type="primary" if not modules else "secondary",
                              disabled=not name, width="stretch")  # fmt: skip
    if wanted:
        words = f"Created {name}.py and added it to {SETTINGS}."
        _do(lambda: write_template(workspace, name), TEMPLATE, words)
    if not trusted(workspace):
        st.caption(
            "Files are only read here. Nothing is imported or run until you press **Trust this folder**, which comes "
            "next."
        )


def _module(module: FoundModule, is_named: bool) -> None:
    """A row: the file, what it defines, and the button that names it."""
    key = f"use-{module.name}"
    with st.container(border=True, key=f"found-{module.name}"):
        left, right = st.columns([3, 1], vertical_alignment="center")
        with left:
            html.draw(_words(module))
        with right:
            used = press_button(
                "In use" if is_named else "Use", key, module.name, width="stretch",
                disabled=is_named or bool(module.problem),
            )  # fmt: skip
    if used:
        workspace = resources.workspace()
        _do(lambda: name_module(workspace, module.name), key, f"Added {module.name} to {SETTINGS}.")


def _words(module: FoundModule) -> str:
    """Names of files are the folder's, so they are escaped."""
    path = module.path.relative_to(resources.workspace().root)
    kinds = (("model", module.models), ("data", module.data))
    defined = [f"{kind}: {', '.join(names)}" for kind, names in kinds if names]
    problem = f'<div class="sb-wrong">{escape(module.problem)}</div>' if module.problem else ""
    return f"<b>{escape(str(path))}</b><div>{escape(' · '.join(defined))}</div>{problem}"


def _do(act: Callable[[], object], key: str, said: str) -> None:
    """What was pressed; a mistake is said in the dialog, which stays open."""
    try:
        act()
    except (ConfigError, OSError) as error:
        state.clicks().settle(key, done=False)
        st.error(str(error))
        return
    state.clicks().settle(key, done=False)
    resources.look_anew()
    state.say(said)
    dialogs.close()
    st.rerun()
