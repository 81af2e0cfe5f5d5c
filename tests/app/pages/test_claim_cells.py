"""A claim on the notebook's page: its verdict, and its text, edited."""

from scalebook.training.config import catalogue
from scalebook.training.config.identity import config_hash
from scalebook.training.notebook import store
from scalebook.training.workspace import Workspace
from tests.app.pages.conftest import TEXT, Open, html
from tests.app.recorded import record

CLAIM = """
```yaml claim=low-enough
runs: pixelcnn-async-2   # which
figure: best
metric: val/bits_per_dim
at_most: 2.5
```
"""


def test_a_claim_shows_its_verdict_and_is_edited_by_its_text(open_page: Open, workspace: Workspace) -> None:
    """Best values 2.0, 2.1 and 2.2, and what the fall has left of them: all below 2.5, none of it above."""
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT.replace("repeats: 2", "repeats: 3") + CLAIM, encoding="utf-8")
    cell = store.read(path).notebook.experiments()[0]
    now = config_hash(cell.config, catalogue.describe(workspace))
    for seed in (1, 2, 3):
        record(workspace, seed=seed, config_hash=now, level=1.9 + 0.1 * seed)
    app = open_page()
    assert 'sb-supported">supported</span>' in html(app)
    assert "best val/bits_per_dim: at most 2.5" in html(app)
    assert "<th>verdict</th>" in html(app)
    app.button(key="edit-low-enough").click().run()
    (text,) = [one for one in app.text_area if one.label == "Text"]
    text.set_value(CLAIM.strip().replace("2.5", "2.0")).run()
    app.button(key="claim-save").click().run()
    assert not app.exception
    assert "runs: pixelcnn-async-2   # which\n" in path.read_text(encoding="utf-8")
    assert "at_most: 2.0\n" in path.read_text(encoding="utf-8")
    assert 'sb-not-resolved">not resolved</span>' in html(app)
