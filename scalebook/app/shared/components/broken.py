"""Records that cannot be read, with their paths: what they belong to may be missing from the page."""

from collections.abc import Sequence

import streamlit as st

from scalebook.training.files.records import Broken

SHOWN = 5


def draw(errors: Sequence[Broken]) -> None:
    """A warning that names the first few of the records; nothing where there are none."""
    if not errors:
        return
    lines = [str(error) for error in errors[:SHOWN]]
    more = [f"And {len(errors) - SHOWN} more: see `scalebook jobs list`."] if len(errors) > SHOWN else []
    st.warning("\n\n".join([*lines, *more]), icon=":material/broken_image:")
