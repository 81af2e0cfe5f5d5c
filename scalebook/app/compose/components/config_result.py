"""What stands beside the form: batch sizes, the YAML, the command."""

from collections.abc import Sequence
from typing import Final, Literal

import streamlit as st

from scalebook.app import state
from scalebook.app.shared import html
from scalebook.app.shared.widgets import code_block, confirmed_anyway, press_button
from scalebook.app.shared.words import plural
from scalebook.training.config.workload import Workload
from scalebook.training.errors import Problem

Intent = Literal["run", "save"]


KEYS: Final[dict[Intent, str]] = {"run": "compose-run", "save": "compose-save"}
MOST_SAID: Final = 3


def buttons(wrong: Sequence[Problem], waiting: int, shown: str, crowd: str) -> Intent | None:
    """Run and Save, off while anything is `wrong`, which is said below; `waiting` is the number of runs to submit.

    `shown`: see `state.Clicks`. Run is off, too, until what `crowd` says has been confirmed.
    """
    off = bool(wrong)
    row = st.container(horizontal=True, vertical_alignment="center", key="compose-buttons")
    meant = confirmed_anyway(crowd, f"compose-crowd-{shown}-{crowd}")
    with row:
        run = press_button(
            "Run", KEYS["run"], shown, type="primary", icon=":material/play_arrow:", disabled=off or not meant,
            help=f"Saves the experiment to the notebook and submits {plural(waiting, 'run')}. Ctrl+Enter",
        )  # fmt: skip
        save = press_button(
            "Save", KEYS["save"], shown, icon=":material/save:", disabled=off,
            help="Saves the experiment to the notebook. Ctrl+S",
        )  # fmt: skip
    intent: Intent | None = "run" if run else "save" if save else None
    if not wrong and (meant or intent != "run"):
        return intent
    if not wrong:
        state.clicks().settle(KEYS["run"], done=False)  # clicked before what it asks for had grown
        return None
    why = [str(problem) for problem in wrong[:MOST_SAID]]
    why += [f"And {len(wrong) - MOST_SAID} more."] if len(wrong) > MOST_SAID else []
    st.caption(":red[**Fix this to run or save:**] " + " ".join(why))
    if intent:
        state.clicks().settle(KEYS[intent], done=False)
        state.say(f"Not {'run' if run else 'saved'}: {wrong[0]}", ":material/error:")
    return None


def sizes(load: Workload) -> None:
    """Batch per worker, global and effective, always; a dash where the data has no batch size."""

    def shown(value: int | None) -> str:
        return "–" if value is None else f"{value:,}"

    html.facts(
        [
            ("batch per worker", shown(load.batch_per_worker)),
            ("global batch", shown(load.batch_global)),
            ("effective batch", shown(load.batch_effective)),
            _rate(load),
        ]
    )


def _rate(load: Workload) -> tuple[str, str]:
    """The one that optimizers step with."""
    if load.learning_rate_scaled is not None:
        return "scaled learning rate", f"{load.learning_rate_scaled:g}"
    return "learning rate", "–" if load.learning_rate is None else f"{load.learning_rate:g}"


def meaning(load: Workload) -> str:
    """Why the effective batch is what it is, in one sentence."""
    if load.batch_per_worker is None:
        return "This data has no batch_size."
    gathered = f", each over {load.accumulate} batches" if load.accumulate > 1 else ""
    if load.workers == 1:
        return f"One process: one batch per update{gathered}."
    if load.gradients == load.workers:
        return f"Each update averages the gradients of all {load.workers} workers{gathered}."
    if load.computed > load.gradients:
        return f"Each update averages the first {load.gradients} of {load.computed} gradients{gathered}."
    if load.gradients > 1:
        return f"Each update averages any {load.gradients} gradients{gathered}."
    return f"Each gradient of the {load.workers} workers is an update of its own{gathered}; others' arrive in between."


def text(yaml_text: str, commands: str, file_name: str) -> None:
    """The YAML as it would be saved, and how to run it without a browser."""
    html.draw('<div class="sb-eyebrow">YAML</div>')
    code_block(yaml_text, "yaml")
    html.draw('<div class="sb-eyebrow">Run from the command line</div>')
    code_block(commands, wrap=True)
    st.download_button("Download YAML", yaml_text, file_name, "text/yaml", type="tertiary", icon=":material/download:",
                       on_click="ignore")  # fmt: skip
