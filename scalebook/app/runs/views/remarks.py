"""The note and the tags of a run, or the tags of several, in a dialog; written to MLflow."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs.services import remarks, run_query
from scalebook.app.runs.services.runs import RunView
from scalebook.app.shared import dialogs
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import plural
from scalebook.training.errors import ConfigError
from scalebook.training.tracking.reading import RunRecord

SAVE = "remarks-save"
SAVE_ALL = "tags-save"


def show(record: RunRecord) -> None:
    """What has been said of the run, and a button to say it."""
    note, tags = run_query.note(record), run_query.tags(record)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="remarks"):
        for tag in tags:
            st.badge(tag.replace("[", "\\["), color="gray")
        if note:
            st.text(note)
        if st.button("Note and tags", key="remarks-edit", type="tertiary", icon=":material/edit_note:"):
            ask(record)


def ask(record: RunRecord) -> NoReturn:
    """Opens the dialog."""
    dialogs.ask("Note and tags", partial(_draw, record))


def ask_tags(views: Sequence[RunView]) -> NoReturn:
    """Opens the dialog for tags of several runs."""
    dialogs.ask(f"Tags of {plural(len(views), 'run')}", partial(_draw_tags, [view.record for view in views]))


def _known() -> set[str]:
    """Every tag that somebody has given a run."""
    return {tag for run in resources.all_runs() for tag in run_query.tags(run)}


def _draw_tags(records: Sequence[RunRecord]) -> None:
    present = Counter(tag for record in records for tag in run_query.tags(record))
    added = st.multiselect("Add to all", sorted({*_known(), *present}), key="tags-add", accept_new_options=True,
                           placeholder="Type a word, or key=value")  # fmt: skip
    removed = st.multiselect(
        "Remove from all", sorted(present), key="tags-remove", placeholder="Choose tags", disabled=not present,
        format_func=lambda tag: f"{tag} (of {present[tag]})",
    )  # fmt: skip
    st.caption("Saved to MLflow. Notes and other tags stay.")
    shown = " ".join(record.id for record in records)
    if press_button("Save", SAVE_ALL, shown, type="primary", disabled=not (added or removed)):
        _save(SAVE_ALL, lambda: _retag(records, added, removed))


def _draw(record: RunRecord) -> None:
    present = run_query.tags(record)
    known = sorted({*present, *_known()})
    tags = st.multiselect("Tags", known, present, key="remarks-tags", accept_new_options=True,
                          placeholder="Type a word, or key=value")  # fmt: skip
    note = st.text_area("Note", run_query.note(record), key="remarks-note", max_chars=remarks.LONGEST_VALUE)
    st.caption("Saved to MLflow. The list of runs can be filtered by them.")
    if press_button("Save", SAVE, record.id, type="primary"):
        _save(SAVE, lambda: _write(record, note or "", tags))


def _retag(records: Sequence[RunRecord], added: Sequence[str], removed: Sequence[str]) -> str:
    changed = remarks.retag(resources.reader(), records, added, removed)
    return f"Changed the tags of {plural(changed, 'run')}."


def _write(record: RunRecord, note: str, tags: Sequence[str]) -> str:
    remarks.write(resources.reader(), record, note, tags)
    return "Saved."


def _save(key: str, write: Callable[[], str]) -> None:
    """Write, say what `write` returns, and close the dialog; a mistake is shown in it."""
    try:
        said = write()
    except ConfigError as error:
        st.error(str(error))
        return
    finally:
        state.clicks().settle(key, done=False)
    resources.look_at_all_runs_anew()
    state.say(said)
    dialogs.close()
    st.rerun()
