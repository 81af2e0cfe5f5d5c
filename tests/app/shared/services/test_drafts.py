from pathlib import Path

from scalebook.app.shared.services import drafts
from scalebook.app.shared.services.drafts import SavedDraft
from scalebook.training.workspace import Workspace
from tests.app.recorded import config


def test_a_draft_survives_until_it_is_discarded(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    draft = SavedDraft("first-steps", "", "mine", 3, config())
    assert drafts.load(workspace, "first-steps", "") is None
    drafts.save(workspace, draft)
    assert drafts.load(workspace, "first-steps", "") == draft
    assert drafts.load(workspace, "first-steps", "pixelcnn-async-2") is None
    drafts.discard(workspace, "first-steps", "")
    assert drafts.load(workspace, "first-steps", "") is None
