"""A claim on the notebook's page: its verdict, its form, and its text, edited."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs import job_requests
from scalebook.training.notebook import store
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
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
SEARCH = """```yaml search=batch
experiment: pixelcnn-async-2
objective: val/bits_per_dim
space: {batch_size: [32, 64]}
seeds: 5
```
"""


def test_a_claim_shows_its_verdict_and_is_edited_by_its_text(open_page: Open, workspace: Workspace) -> None:
    """Best values 2.0, 2.1 and 2.2, and what the fall has left of them: all below 2.5, none of it above."""
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT.replace("repeats: 2", "repeats: 3") + CLAIM, encoding="utf-8")
    cell = store.read(path).notebook.experiments()[0]
    now = config_hash(Experiment.read(cell.config, catalogue.describe(workspace)))
    for seed in (1, 2, 3):
        record(workspace, seed=seed, config_hash=now, level=1.9 + 0.1 * seed)
    app = open_page()
    assert 'sb-supported">supported</span>' in html(app)
    assert "The best val/bits_per_dim of pixelcnn-async-2 is at most 2.5." in html(app)
    assert "<th>verdict</th>" in html(app)
    app.button(key="edit-low-enough").click().run()
    (text,) = [one for one in app.text_area if one.label == "Text"]
    text.set_value(CLAIM.strip().replace("2.5", "2.0")).run()
    app.button(key="claim-save").click().run()
    assert not app.exception
    assert "runs: pixelcnn-async-2   # which\n" in path.read_text(encoding="utf-8")
    assert "at_most: 2.0\n" in path.read_text(encoding="utf-8")
    assert 'sb-not-resolved">not resolved</span>' in html(app)


SINGLE = TEXT.partition("```yaml")[2].replace("pixelcnn-async-2", "single").replace("rule: async", "rule: sync")


def press(app: AppTest, label: str) -> AppTest:
    next(one for one in app.button if one.label == label).click().run()
    assert not app.exception, app.exception[0].value
    return app


def select(app: AppTest, label: str) -> Any:
    return next(one for one in (*app.selectbox, *app.multiselect) if one.label == label)


def box(app: AppTest, label: str) -> Any:
    return next(one for one in app.text_input if one.label == label)


def red(app: AppTest) -> list[str]:
    return [line for one in app.caption for line in one.value.split("  \n") if line.startswith(":red")]


def test_a_claim_is_added_by_a_form_and_refused_by_field(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(f"{TEXT}\n```yaml{SINGLE}", encoding="utf-8")
    app = press(open_page(), "Add a claim")
    assert select(app, "Claim about").value == ["single"]
    assert select(app, "Compared with").value == "pixelcnn-async-2"
    assert red(app) == [], "nothing is wrong before anything was filled in"
    unfinished = "single needs at most … times the samples of pixelcnn-async-2 to bring val/bits_per_dim to …."
    assert unfinished in html(app)
    app.button(key="claim-form-save").click().run()
    assert store.read(path).notebook.claims() == []
    assert red(app) == [
        ":red[Target: is missing. Enter the value of val/bits_per_dim to reach.]",
        ":red[At most: is empty, and At least is empty too. Fill in at least one of the two bounds.]",
    ]
    box(app, "Target").set_value("2,5").run()
    assert red(app) == [":red[Target: '2,5' is not a number. Enter a number, such as 0.95.]"]
    assert app.button(key="claim-form-save").disabled
    select(app, "Figure").set_value("best").run()
    box(app, "At least").set_value("1").run()
    box(app, "At most").set_value("0.8").run()
    assert red(app) == [":red[At least: is 1, which is not below At most. Enter a smaller number.]"]
    box(app, "At least").set_value("").run()
    box(app, "Name").set_value("single").run()
    assert red(app) == [":red[Name: single is already used in this notebook. Choose another one.]"]
    box(app, "Name").set_value("lower").run()
    select(app, "Claim about").set_value(["pixelcnn-async-2"]).run()
    assert red(app) == [
        ":red[Claim about: contains a side twice, or contains the baseline as a side. Use each side only once.]",
    ]
    select(app, "Claim about").set_value(["single"]).run()
    assert red(app) == []
    assert any("which has 2 seeds" in one.value for one in app.caption), "a warning, which may be saved"
    assert "The best val/bits_per_dim of single is at most 0.8 times that of pixelcnn-async-2." in html(app)
    app.button(key="claim-form-save").click().run()
    assert not app.exception
    assert store.read(path).notebook.claims()[0].source == (
        "```yaml claim=lower\nruns: [single]\nagainst: pixelcnn-async-2\nfigure: best\nmetric: val/bits_per_dim\n"
        "at_most: 0.8\n```\n"
    )
    assert "The best val/bits_per_dim of single is at most 0.8 times that of pixelcnn-async-2." in html(app)


def test_a_form_changes_of_a_claim_what_it_was_asked_to(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + CLAIM, encoding="utf-8")
    app = press(open_page(), "Edit")  # of the note, which stays closed in the end
    press(app, "Cancel")
    app.button(key="edit-low-enough").click().run()
    box(app, "At most").set_value("2.25").run()
    box(app, "Name").set_value("lower").run()
    app.button(key="claim-form-save").click().run()
    assert not app.exception
    assert path.read_text(encoding="utf-8") == TEXT + CLAIM.replace("2.5", "2.25").replace("low-enough", "lower")


def test_the_form_says_what_is_better_of_the_metric_and_saves_it_once_it_is_chosen(
    open_page: Open, workspace: Workspace
) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + CLAIM, encoding="utf-8")

    def chosen(app: AppTest) -> Any:
        return next(one for one in app.button_group if one.label == "Better")

    app = open_page()
    app.button(key="edit-low-enough").click().run()
    assert chosen(app).value == "min"
    chosen(app).set_value("max").run()
    app.button(key="claim-form-save").click().run()
    assert not app.exception
    (claim,) = store.read(path).notebook.claims()
    assert (claim.goal, claim.metric) == ("max", "val/bits_per_dim")
    assert any(one.value == "Higher is better of val/bits_per_dim." for one in app.caption), "the card says so, too"
    app.button(key="edit-low-enough").click().run()
    assert chosen(app).value == "max"


def test_a_part_of_a_search_is_typed_as_it_is_written(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(f"{TEXT}\n{SEARCH}", encoding="utf-8")
    app = press(open_page(), "Add a claim")
    select(app, "Claim about").set_value(["batch_size: 64"]).run()
    select(app, "Figure").set_value("best").run()
    box(app, "At most").set_value("1").run()
    assert red(app) == [
        ":red[Search: is missing, but runs contains parts of a search. Set search: NAME, where NAME is a search cell.]"
    ]
    select(app, "Search").set_value("batch").run()
    select(app, "Compared with").set_value("").run()
    assert red(app) == []
    app.button(key="claim-form-save").click().run()
    (claim,) = store.read(path).notebook.claims()
    assert claim.runs == [{"batch_size": 64}]
    assert claim.against is None
    assert claim.search == "batch"


@pytest.mark.thorough
def test_two_ratios_are_compared_by_the_form(open_page: Open, workspace: Workspace) -> None:
    """Each with fields of its own; what is wrong is said below the field, and saved as it is read."""
    path = workspace.root / "first-steps.md"
    others = "".join(f"\n```yaml{SINGLE.replace('=single', f'={name}')}" for name in ("other", "its-base", "single"))
    path.write_text(f"{TEXT}{others}\n{SEARCH}", encoding="utf-8")
    app = press(open_page(), "Add a claim")
    next(one for one in app.toggle if one.label == "Compare two ratios").set_value(True).run()
    assert not app.exception, app.exception[0].value

    def field(at: str, word: str) -> Any:
        key = f"claim-first-steps.md--{at}-{word}"
        return next(one for one in (*app.selectbox, *app.text_input) if one.key == key)

    assert (field("runs", "of").value, field("runs", "against").value) == ("single", "pixelcnn-async-2")
    assert red(app) == []
    app.button(key="claim-form-save").click().run()
    assert ":red[Experiment: is empty. Choose one.]" in red(app)
    assert red(app).count(":red[Target: is missing. Enter the value of val/bits_per_dim to reach.]") == 2
    field("against", "of").set_value("other").run()
    field("against", "against").set_value("single").run()
    field("against", "metric").set_value("val/bits_per_dim").run()
    field("runs", "target").set_value("2.5").run()
    field("against", "target").set_value("2").run()
    box(app, "At least").set_value("1").run()
    assert red(app) == [":red[Claim about: contains the same side in both ratios. Compare four different sides.]"]
    field("against", "against").set_value("its-base").run()
    assert red(app) == []
    assert (
        "The ratio of single to pixelcnn-async-2 in samples to bring val/bits_per_dim to 2.5 is at least 1 times the "
        "ratio of other to its-base in samples to bring val/bits_per_dim to 2."
    ) in html(app)
    app.button(key="claim-form-save").click().run()
    assert not app.exception
    saved = (
        "runs: [{of: single, against: pixelcnn-async-2, metric: val/bits_per_dim, target: 2.5}]\n"
        "against: {of: other, against: its-base, metric: val/bits_per_dim, target: 2.0}\n"
        "figure: samples\nat_least: 1.0\n```\n"
    )
    assert store.read(path).notebook.claims()[0].source.endswith(saved)
    app.button(key="edit-claim").click().run()
    box(app, "At least").set_value("1.5").run()
    app.button(key="claim-form-save").click().run()
    assert store.read(path).notebook.claims()[0].source.endswith(saved.replace("at_least: 1.0", "at_least: 1.5"))


def test_results_are_written_into_a_note_by_a_button(open_page: Open, workspace: Workspace) -> None:
    """Which is there until what stands in the note is of these runs; readers do not see the comments."""
    path = workspace.root / "first-steps.md"
    note = "\nFound:\n\n<!-- results: low-enough -->\n<!-- end of results -->\n"
    path.write_text(TEXT.replace("repeats: 2", "repeats: 3") + CLAIM + note, encoding="utf-8")
    now = config_hash(Experiment.read(store.read(path).notebook.experiments()[0].config, catalogue.describe(workspace)))
    for seed in (1, 2, 3):
        record(workspace, seed=seed, config_hash=now, level=1.9 + 0.1 * seed)
    app = open_page()
    assert any(one.value == "Results of low-enough are not written." for one in app.caption)
    press(app, "Write results")
    assert "| pixelcnn-async-2 | 3 | 2.1" in path.read_text(encoding="utf-8")
    assert not any(one.label == "Write results" for one in app.button)
    assert not any("<!--" in one.value for one in app.markdown)


def better(app: AppTest) -> Any:
    return next(one for one in app.button_group if one.label == "Better")


@pytest.mark.thorough
def test_the_form_guesses_from_what_the_claim_is_about_alone(open_page: Open, workspace: Workspace) -> None:
    """Not from another experiment of the notebook, nor from another search; and it follows what is chosen."""
    path = workspace.root / "first-steps.md"
    of_other = SEARCH.replace("batch\n", "of-other\n").replace("pixelcnn-async-2", "other")
    other = f"\n```yaml{SINGLE.replace('=single', '=other')}"
    path.write_text(f"{TEXT}{other}\n{SEARCH}\n{of_other}", encoding="utf-8")
    job = record(workspace, cell="other")
    client = open_store(workspace)
    client.set_tag(job.id, names.TAG_DIRECTIONS, '{"zeal": "max"}')
    for name in ("zeal", names.best("zeal")):
        client.log_metric(job.id, name, 1.0)
    app = press(open_page(), "Add a claim")
    select(app, "Compared with").set_value("").run()
    select(app, "Claim about").set_value(["pixelcnn-async-2"]).run()
    select(app, "Figure").set_value("best").run()
    select(app, "Metric").set_value("zeal").run()
    assert better(app).value == "min"
    assert ("This is a guess, because neither the config nor the metric says which direction is better.") in [
        one.value for one in app.caption
    ]
    select(app, "Claim about").set_value(["other"]).run()
    assert better(app).value == "max", "as its runs have recorded"
    box(app, "At most").set_value("1").run()
    select(app, "Claim about").set_value(["batch_size: 64"]).run()
    select(app, "Search").set_value("of-other").run()
    assert better(app).value == "max"
    select(app, "Search").set_value("batch").run()
    assert better(app).value == "min"
    app.button(key="claim-form-save").click().run()
    assert not app.exception
    assert "metric: zeal\n" in path.read_text(encoding="utf-8"), "nobody has said what is better"


def drafts_in(workspace: Workspace) -> int:
    return len(list(workspace.cache.glob("claim-draft-*")))


def test_what_was_typed_into_a_claim_survives_a_reload(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + CLAIM, encoding="utf-8")
    app = open_page()
    app.button(key="edit-low-enough").click().run()
    assert drafts_in(workspace) == 0, "nothing was typed"
    box(app, "At most").set_value("1.5").run()
    assert drafts_in(workspace) == 1
    again = open_page()
    assert any("**Draft** of the claim low-enough" in one.value for one in again.caption)
    again = press(again, "Continue")
    assert box(again, "At most").value == "1.5"
    path.write_text(TEXT + CLAIM.replace("2.5", "2.4"), encoding="utf-8")  # edited elsewhere meanwhile
    again = press(open_page(), "Continue")
    press(again, "Save")
    assert "at_most: 2.4" in path.read_text(encoding="utf-8"), "asked, and not overwritten"
    again.button(key="keep-both").click().run()
    assert [claim.at_most for claim in store.read(path).notebook.claims()] == [2.4, 1.5]
    assert drafts_in(workspace) == 0


def test_a_new_claim_and_a_claims_text_survive_a_reload(open_page: Open, workspace: Workspace) -> None:
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT + CLAIM, encoding="utf-8")
    app = press(open_page(), "Add a claim")
    assert drafts_in(workspace) == 0, "nothing was typed"
    box(app, "Name").set_value("slow").run()
    app = open_page()
    app.button(key="edit-low-enough").click().run()
    (text,) = [one for one in app.text_area if one.label == "Text"]
    text.set_value(CLAIM.strip().replace("2.5", "7")).run()
    assert drafts_in(workspace) == 2
    app = open_page()
    app.button(key="edit-low-enough").click().run()
    (text,) = [one for one in app.text_area if one.label == "Text"]
    assert "at_most: 7" in str(text.value)
    app.button(key="claim-cancel").click().run()
    assert drafts_in(workspace) == 1
    app = press(open_page(), "Add a claim")
    assert box(app, "Name").value == "slow"


def test_a_claim_begins_with_what_has_run(open_page: Open, workspace: Workspace) -> None:
    """Its sides are experiments of one model that have runs, with a single worker as the baseline; the target is one
    that all their runs have reached."""
    path = workspace.root / "first-steps.md"
    one = TEXT.partition("```yaml")[2].replace("pixelcnn-async-2", "one").replace("devices: 2", "devices: 1")
    one = one.replace("strategy: {class_path: AsyncPS, init_args: {rule: async}}", "strategy: auto")
    other = SINGLE.replace("PixelCNN", "ConvClassifier")
    path.write_text(f"{TEXT}\n```yaml{one}\n```yaml{SINGLE}\n```yaml{other.replace('=single', '=other')}")
    for cell, level in (("pixelcnn-async-2", 2.0), ("one", 2.2)):
        record(workspace, cell=cell, level=level)
    app = press(open_page(), "Add a claim")
    assert (select(app, "Claim about").value, select(app, "Compared with").value) == (["pixelcnn-async-2"], "one")
    assert box(app, "Target").value == "2.3", "2.247 rounded up"
    assert "pixelcnn-async-2 needs at most … times the samples of one to bring val/bits_per_dim to 2.3." in html(app)
    box(app, "At most").set_value("0.8").run()
    assert "pixelcnn-async-2 needs at most 0.8 times the samples of one to" in html(app)
    app.button(key="claim-form-save").click().run()
    assert store.read(path).notebook.claims()[0].target == 2.3


def test_a_claim_that_is_not_resolved_adds_the_seeds_that_would(
    open_page: Open, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three seeds, whose best values are on both sides of the bound. The button edits `repeats`, and starts the runs
    of the new seeds only."""
    path = workspace.root / "first-steps.md"
    path.write_text(TEXT.replace("repeats: 2", "repeats: 3") + CLAIM.replace("2.5", "2.15"), encoding="utf-8")
    now = config_hash(Experiment.read(store.read(path).notebook.experiments()[0].config, catalogue.describe(workspace)))
    for seed in (1, 2, 3):
        record(workspace, seed=seed, config_hash=now, level=1.85 + 0.1 * seed)
    submitted: list[Any] = []

    def submit(*args: Any, seeds: list[int], **more: Any) -> list[int]:
        submitted.append((more["cell"], seeds))
        return seeds

    monkeypatch.setattr(job_requests, "submit", submit)
    app = open_page()
    (remark,) = [one.value for one in app.caption if "seeds would resolve it" in one.value]
    wanted = int(remark.split(", ")[1].split()[0])
    button = app.button(key="add-seeds-low-enough")
    assert button.label == f"Run {wanted - 3} more seeds"
    assert any(
        one.value.startswith(f"{wanted - 3} of pixelcnn-async-2: {wanted} seeds each, about ") for one in app.caption
    )
    button.click().run()
    assert not app.exception
    assert f"repeats: {wanted}   # seeds 1 and 2\n" in path.read_text(encoding="utf-8")
    assert submitted == [("pixelcnn-async-2", list(range(4, wanted + 1)))]
    assert [one.value for one in app.toast] == [f"Submitted {wanted - 3} runs."]
