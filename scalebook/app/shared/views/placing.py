"""Moving cells, and beginning notes around them."""

from functools import partial

from scalebook.app.shared.services import notebooks
from scalebook.app.shared.views import note
from scalebook.app.shared.views.writing import write
from scalebook.training.notebook.store import Stored


def act(intent: str, stored: Stored, index: int) -> None:
    """What `cell_menu.PLACES` offers, of cell `index`; anything else is not its business."""
    if intent in ("up", "down"):
        write(stored, partial(notebooks.move, index=index, by=-1 if intent == "up" else 1), said="")
    elif intent == "note above":
        note.add(stored, index)
    elif intent == "note below":
        note.add(stored, index + 1)
