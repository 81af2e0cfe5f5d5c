"""Records that cannot be read, with their paths: what they belong to may be missing from the page."""

from collections.abc import Sequence

import streamlit as st

from scalebook.training.files.records import Broken

SHOWN = 5


def draw(found: Sequence[Broken]) -> None:
    """Nothing where there is none."""
    if not found:
        return
    lines = [str(one) for one in found[:SHOWN]]
    more = [f"And {len(found) - SHOWN} more: `scalebook jobs list` shows them all."] if len(found) > SHOWN else []
    st.warning("\n\n".join([*lines, *more]), icon=":material/broken_image:")
