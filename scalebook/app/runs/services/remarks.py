"""What people say of a run: a note and tags, as tags of MLflow, whose own pages show and change them too."""

from collections.abc import Iterable
from typing import Final

from scalebook.app.runs.services import run_query
from scalebook.training.errors import ConfigError
from scalebook.training.tracking import names, notes
from scalebook.training.tracking.reading import RunReader, RunRecord

LONGEST_KEY: Final = 250
LONGEST_VALUE: Final = 5_000
"""Characters that MLflow takes."""


def retag(reader: RunReader, records: Iterable[RunRecord], add: Iterable[str], remove: Iterable[str]) -> int:
    """Give all `records` the tags `add` and take `remove` from them; how many runs were changed. Nothing else of them
    changes. ConfigError, before anything is written, for a tag that MLflow refuses."""
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


def write(reader: RunReader, record: RunRecord, note: str, tags: Iterable[str]) -> None:
    """Make `record` say this and no more. A tag is a word, or `key=value`. ConfigError for one that MLflow refuses."""
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
        _, ours = notes.parted(record.tags.get(names.TAG_NOTE, ""), record.id)
        reader.client.set_tag(record.id, names.TAG_NOTE, notes.joined(note, ours))


def _read(tag: str) -> tuple[str, str]:
    """Key and value. ConfigError for what cannot be a tag of a person's."""
    key, _, value = (part.strip() for part in tag.partition("="))
    allowed = bool(key) and all(sign.isalnum() or sign in "_-. /:" for sign in key)
    if not allowed or len(key) > LONGEST_KEY or len(value) > LONGEST_VALUE or key.startswith(run_query.OURS):
        raise ConfigError("tag", f"cannot be {tag[:LONGEST_KEY]!r}", "Use letters, digits, spaces and `_-./:`.")
    return key, value
