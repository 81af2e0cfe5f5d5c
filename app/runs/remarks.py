"""A person's remarks on runs: a note, tags, and the direction of a metric. All are tags in MLflow, whose own pages show
and change them too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.runs import run_query
from scalebook.app.runs.data import RunView
from scalebook.app.shared import dialogs
from scalebook.app.shared.widgets import press_button, turn_better
from scalebook.app.shared.words import plural
from scalebook.training.base import ConfigError
from scalebook.training.notebook import best
from scalebook.training.tracking import Goal, RunReader, RunRecord, directions, names, notes

LONGEST_KEY: Final = 250
LONGEST_VALUE: Final = 5_000
"""Characters that MLflow accepts."""


def retag(reader: RunReader, records: Iterable[RunRecord], add: Iterable[str], remove: Iterable[str]) -> int:
    """Add the tags `add` to all `records` and remove `remove`; returns how many runs changed. ConfigError, before
    anything is written, for a tag that MLflow refuses."""
    added, removed = dict(_read(tag) for tag in add if tag.strip()), dict(_read(tag) for tag in remove)
    both = sorted(added.keys() & removed.keys())
    if both:
        raise ConfigError("tags", f"cannot both add and remove {both[0]!r}", "Choose one.")
    changed = 0
    for record in records:
        present = dict(_read(tag) for tag in run_query.tags(record))
        gone = [key for key, value in removed.items() if present.get(key) == value]
        new = {key: value for key, value in added.items() if present.get(key) != value}
        for key in gone:
            reader.client.delete_tag(record.id, key)
        for key, value in new.items():
            reader.client.set_tag(record.id, key, value)
        changed += bool(gone or new)
    return changed


def write_remarks(reader: RunReader, record: RunRecord, note: str, tags: Iterable[str]) -> None:
    """Replace note and tags of `record`. A tag is a word, or `key=value`. ConfigError for one that MLflow refuses."""
    wanted = dict(_read(tag) for tag in tags if tag.strip())
    if len(note) > LONGEST_VALUE:
        raise ConfigError("note", f"has {len(note):,} characters, more than {LONGEST_VALUE:,}", "Make it shorter.")
    present = dict(_read(tag) for tag in run_query.tags(record))
    for key in present.keys() - wanted.keys():
        reader.client.delete_tag(record.id, key)
    for key, value in wanted.items():
        if present.get(key) != value:
            reader.client.set_tag(record.id, key, value)
    if note != run_query.note(record):
        _, ours = notes.split_note(record.tags.get(names.TAG_NOTE, ""), record.id)
        reader.client.set_tag(record.id, names.TAG_NOTE, notes.join_note(note, ours))


def _read(tag: str) -> tuple[str, str]:
    """Key and value of a tag. ConfigError for a text that cannot be a person's tag."""
    key, _, value = (part.strip() for part in tag.partition("="))
    allowed = bool(key) and all(sign.isalnum() or sign in "_-. /:" for sign in key)
    if not allowed or len(key) > LONGEST_KEY or len(value) > LONGEST_VALUE or key.startswith(run_query.OURS):
        raise ConfigError("tag", f"cannot be {tag[:LONGEST_KEY]!r}", "Use letters, digits, spaces and `_-./:`.")
    return key, value


SAVE = "remarks-save"
SAVE_ALL = "tags-save"


def show_remarks(record: RunRecord) -> None:
    """Draw note and tags of the run, and the button that edits them."""
    note, tags = run_query.note(record), run_query.tags(record)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="remarks"):
        for tag in tags:
            st.badge(tag.replace("[", "\\["), color="gray")
        if note:
            st.text(note)
        if st.button("Note and tags", key="remarks-edit", type="tertiary", icon=":material/edit_note:"):
            ask_remarks(record)


def ask_remarks(record: RunRecord) -> NoReturn:
    """Open the dialog for note and tags of a run."""
    dialogs.ask("Note and tags", partial(_remarks_dialog, record))


def ask_tags(views: Sequence[RunView]) -> NoReturn:
    """Open the dialog for the tags of several runs."""
    dialogs.ask(f"Tags of {plural(len(views), 'run')}", partial(_tags_dialog, [view.record for view in views]))


def _known_tags() -> set[str]:
    """Every tag that a person has given to a run."""
    return {tag for run in resources.all_runs() for tag in run_query.tags(run)}


def _tags_dialog(records: Sequence[RunRecord]) -> None:
    present = Counter(tag for record in records for tag in run_query.tags(record))
    added = st.multiselect("Add to all", sorted({*_known_tags(), *present}), key="tags-add", accept_new_options=True,
                           placeholder="Type a word, or key=value")  # fmt: skip
    removed = st.multiselect(
        "Remove from all", sorted(present), key="tags-remove", placeholder="Choose tags", disabled=not present,
        format_func=lambda tag: f"{tag} (of {present[tag]})",
    )  # fmt: skip
    st.caption("Saved to MLflow. Notes and other tags are kept.")
    stamp = " ".join(record.id for record in records)
    if press_button("Save", SAVE_ALL, stamp, type="primary", disabled=not (added or removed)):
        _save(SAVE_ALL, lambda: _retag_all(records, added, removed))


def _remarks_dialog(record: RunRecord) -> None:
    present = run_query.tags(record)
    choices = sorted({*present, *_known_tags()})
    tags = st.multiselect("Tags", choices, present, key="remarks-tags", accept_new_options=True,
                          placeholder="Type a word, or key=value")  # fmt: skip
    note = st.text_area("Note", run_query.note(record), key="remarks-note", max_chars=LONGEST_VALUE)
    st.caption("Saved to MLflow. The list of runs can be filtered by note and tag.")
    if press_button("Save", SAVE, record.id, type="primary"):
        _save(SAVE, lambda: _write_one(record, note or "", tags))


def _retag_all(records: Sequence[RunRecord], added: Sequence[str], removed: Sequence[str]) -> str:
    changed = retag(resources.reader(), records, added, removed)
    return f"Changed the tags of {plural(changed, 'run')}."


def _write_one(record: RunRecord, note: str, tags: Sequence[str]) -> str:
    write_remarks(resources.reader(), record, note, tags)
    return "Saved."


def _save(key: str, write: Callable[[], str]) -> None:
    """Call `write`, show what it returns, and close the dialog; an error is shown in the dialog."""
    try:
        toast = write()
    except ConfigError as error:
        st.error(str(error))
        return
    finally:
        state.clicks().mark_handled(key, done=False)
    resources.look_at_all_runs_anew()
    state.show_message(toast)
    dialogs.close()
    st.rerun()


def set_direction(reader: RunReader, records: Iterable[RunRecord], metric: str, goal: Goal) -> None:
    """Record the goal that a person chose for a metric of ended runs, and compute their best value from the curve
    again. An active run records its own best value."""
    for record in records:
        goals = directions.recorded_directions([record.tags], names.TAG_GOALS) | {metric: goal}
        value = best(reader.curve(record.id, metric), goal == "min")
        if value is not None:
            reader.client.log_metric(record.id, names.best(metric), value, step=0)
        reader.client.set_tag(record.id, names.TAG_GOALS, directions.as_tag(goals))


def offer_direction(views: Sequence[RunView], key: str) -> None:
    """Draw whether lower or higher is better for the main metric of ended runs of one experiment, if that is a guess,
    with a button that turns it; nothing while a run is active, since it records its own best value."""
    main = names.main_metric(name for view in views for name in view.metrics)
    if main not in names.validation_metrics(name for view in views for name in view.metrics):
        return
    if not views or not all(view.ended for view in views):
        return
    direction = directions.of_runs(main, None, [view.record.tags for view in views])
    if goal := turn_better(main, direction, key, said=True):
        set_direction(resources.reader(), [view.record for view in views], main, goal)
        resources.look_at_all_runs_anew()
        state.clicks().mark_handled(key)
        st.rerun()
