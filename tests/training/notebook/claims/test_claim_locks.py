"""Claims are locked by their first run: what is changed, renamed, added and taken out afterwards is seen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.search.definition import identity, read_search
from scalebook.training.jobs import job_requests
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.claims import claim_locks
from scalebook.training.notebook.claims.claim_locks import Lock
from scalebook.training.notebook.claims.claim_table import text, verdicts
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import Judgement, judge_all
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.shared_files import Prepared
from tests.training.notebook.claims.test_judging import reaching
from tests.training.tracking.recorded import record

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = "".join(
    f"""```yaml experiment={name}
repeats: 3
config: {{model: ConvClassifier, data: Digits, trainer: {{max_epochs: {epochs}}}}}
```
"""
    for name, epochs in (("base", 1), ("slow", 2))
)
SAYS = "runs: slow\nagainst: base\nfigure: updates\nmetric: val/loss\ntarget: 0.5\n"
CLAIM = f"```yaml claim=c\n{SAYS}at_most: 1.9\n```\n"
DAY = 86_400_000
"""In ms."""


@dataclass
class Page:
    """A notebook whose runs are recorded as they would be; `slow` takes twice the updates of `base`."""

    workspace: Workspace
    description: Description
    client: "MlflowClient"

    def run(self, nb: Notebook, cell: str, day: int, *, tagged: bool = True) -> list[str]:
        """Three seeds, submitted on that day."""
        found = nb.experiment(cell)
        assert found is not None
        tags = claim_locks.claim_tags(nb, cell, self.description) if tagged else {}
        return [
            record(self.client, notebook="page.md", cell=cell, seed=seed, values=reaching(at * found.config["trainer"][
                "max_epochs"]), config_hash=config_hash(found.experiment(self.description)), tags=tags, start=day * DAY)
            for seed, at in ((1, 4), (2, 6), (3, 8))
        ]  # fmt: skip

    def judge(self, nb: Notebook, name: str = "c") -> Judgement:
        reader = RunReader(self.workspace.tracking_uri())
        return judge_all(EvidenceReader(self.workspace, reader, "page.md", nb, self.description))[name]

    def lock(self, nb: Notebook, name: str = "c") -> Lock:
        found = self.judge(nb, name).lock
        assert found is not None
        return found


@pytest.fixture
def page(tmp_path: "object", prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = prepared.into(Workspace(tmp_path))  # type: ignore[arg-type]
    return Page(workspace, describe(workspace), open_store(workspace))


def test_a_change_after_the_first_run_is_shown_with_both_verdicts(page: Page) -> None:
    """Twice is not at most 1.9 times; it is at most 2.1 times, which is claimed only now."""
    nb = parse(PAGE + CLAIM)
    assert page.judge(nb).lock is None, "nothing has begun"
    page.run(nb, "base", 1)
    page.run(nb, "slow", 2)
    found = page.judge(nb)
    assert (found.verdict, found.locked, verdicts(found)) == ("refuted", None, ["refuted"])
    assert found.lock is not None
    assert (found.lock.began, found.lock.changes, found.lock.late) == (DAY / 1000, (), ())
    assert "This claim was locked when its first run started, on 1970-01-02" in text(found)
    changed = page.judge(parse(PAGE + CLAIM.replace("at_most: 1.9", "at_most: 2.1")))
    assert changed.locked is not None
    assert (changed.verdict, changed.locked.verdict) == ("supported", "refuted")
    said = text(changed)
    assert "\nSUPPORTED, AS LOCKED: REFUTED\n" in said
    assert "This claim was changed after its first run (1970-01-02" in said
    assert (
        "): at_most was 1.9. The locked version of the claim is refuted: updates to val/loss 0.5: at most 1.9 x that "
        "of base." in said
    )
    other = page.lock(parse(PAGE + CLAIM.replace("0.5", "0.4").replace("at_most: 1.9", "at_least: 1")))
    assert other.changes == ("target was 0.5", "at_least was not there", "at_most was 1.9")
    turned = page.lock(parse(PAGE + CLAIM.replace("metric: val/loss", "metric: {val/loss: max}")))
    assert turned.changes == ("metric was val/loss",)


def test_a_renamed_claim_or_cell_keeps_its_lock(page: Page) -> None:
    nb = parse(PAGE + CLAIM)
    page.run(nb, "base", 1)
    page.run(nb, "slow", 1)
    claim = edit.rename_claim(nb, "c", "d")
    assert page.lock(claim, "d").changes == ()
    assert page.lock(claim, "d").cell is not None
    softer = parse(claim.text.replace("1.9", "2.1"))
    assert page.lock(softer, "d").changes == ("at_most was 1.9",)
    cells = edit.rename(edit.rename(nb, "base", "first"), "slow", "second")
    assert (page.lock(cells).changes, page.lock(cells).began) == ((), DAY / 1000)
    moved = parse(CLAIM + PAGE)
    assert page.lock(moved).changes == ()


def test_a_claim_that_was_written_after_the_runs_says_so(page: Page) -> None:
    bare, nb = parse(PAGE), parse(PAGE + CLAIM)
    page.run(bare, "base", 1)
    page.run(nb, "slow", 2)
    between = page.judge(nb)
    assert between.lock is not None
    assert (between.lock.began, between.lock.late) == (2 * DAY / 1000, ("base",))
    assert "This claim was written after runs of base had started." in text(between)
    late = parse(
        PAGE + CLAIM + CLAIM.replace("claim=c", "claim=late").replace("runs: slow\nagainst: base", "runs: base")
    )
    assert (page.lock(late, "late").cell, page.lock(late, "late").late) == (None, ("base",))
    assert page.judge(late, "late").locked is None


def test_runs_of_before_say_nothing_of_claims(page: Page) -> None:
    nb = parse(PAGE + CLAIM)
    page.run(nb, "base", 1, tagged=False)
    page.run(nb, "slow", 1)
    found = page.judge(nb)
    assert found.lock is not None
    assert (found.lock.unknown, found.lock.late) == (("base",), ())
    assert "Runs of base do not record which claims the notebook had when these runs started." in text(found)


def test_a_claim_that_is_run_again_is_still_locked_by_the_first_run(page: Page) -> None:
    nb = parse(PAGE + CLAIM)
    page.run(nb, "base", 1)
    page.run(nb, "slow", 1)
    softer = parse(PAGE + CLAIM.replace("1.9", "2.1"))
    page.run(softer, "base", 2)
    page.run(softer, "slow", 2)
    assert page.lock(softer).changes == ("at_most was 1.9",)


def test_deleting_the_runs_does_away_with_the_lock_and_says_so(page: Page) -> None:
    nb = parse(PAGE + CLAIM)
    first = [*page.run(nb, "base", 1), *page.run(nb, "slow", 1)]
    softer = parse(PAGE + CLAIM.replace("1.9", "2.1"))
    page.run(softer, "base", 2)
    page.run(softer, "slow", 2)
    for run in first:
        page.client.delete_run(run)
    found = page.judge(softer)
    assert found.lock is not None
    assert (found.lock.changes, found.lock.began, found.lock.deleted) == ((), 2 * DAY / 1000, ("base", "slow"))
    assert "Earlier runs of base, slow were deleted, together with the claims that they had locked." in text(found)


def test_claims_that_were_taken_out_count_and_so_do_seeds_that_were_added(page: Page) -> None:
    nb = parse(PAGE + CLAIM + CLAIM.replace("claim=c", "claim=second").replace("1.9", "5"))
    page.run(nb, "base", 1)
    page.run(nb, "slow", 1)
    alone = page.judge(parse(PAGE + CLAIM))
    assert (alone.beside, alone.gone) == (2, 1)
    assert "corrected for the 2 claims of this notebook (Holm), including 1 removed after their first run." in text(
        alone
    )
    more = page.judge(parse(PAGE.replace("repeats: 3", "repeats: 8") + CLAIM))
    assert more.lock is not None
    assert more.lock.more_seeds == ("base: 3, now 8", "slow: 3, now 8")
    assert "There are more seeds than when the claim was locked (base: 3, now 8; slow: 3, now 8)" in text(more)


SEARCH = """```yaml search=rates
experiment: base
objective: val/loss
space: {workers: {grid: [1, 2]}, learning_rate: {grid: [0.1, 0.2]}}
seeds: 3
```
"""


def test_a_search_locks_the_claims_on_its_parts(page: Page) -> None:
    """By its own run, not those of its trials; its space is part of what it is found by."""
    claim = "```yaml claim=c\nsearch: rates\nruns: {workers: 2}\nagainst: {workers: 1}\ntarget: 0.5\nat_most: 1\n```\n"
    nb = parse(PAGE + SEARCH + claim)
    (search,) = nb.searches()
    what = identity(read_search(search.body, nb.base(search, page.description), page.description))
    tags = claim_locks.claim_tags(nb, "rates", page.description)
    assert tags[names.TAG_CLAIMS] == "c"
    assert claim_locks.claim_tags(nb, "base", page.description) == {names.TAG_CLAIMS: ""}
    record(page.client, notebook="page.md", cell="rates", config_hash=what, tags=tags, start=DAY)
    assert page.lock(parse(PAGE + SEARCH + claim.replace("at_most: 1", "at_most: 2"))).changes == ("at_most was 1",)
    wider = parse(PAGE + SEARCH.replace("0.2]", "0.4]") + claim)
    assert page.judge(wider).lock is None, "another search, which has not begun"


def test_runs_record_the_claims_on_their_cell(page: Page) -> None:
    nb = parse(PAGE + CLAIM)
    (cell,) = [cell for cell in nb.experiments() if cell.name == "slow"]
    job_requests.submit(
        page.workspace, cell.experiment(page.description), seeds=[1], notebook="page.md", cell="slow", start=False,
        recorded=claim_locks.claim_tags(nb, "slow", page.description),
    )  # fmt: skip
    found = page.lock(parse(PAGE + CLAIM.replace("1.9", "3")))
    assert found.changes == ("at_most was 1.9",)
    assert found.late == ()


def test_a_claim_that_no_tag_can_hold_is_refused(page: Page) -> None:
    sides = ", ".join(f"a-name-of-some-length-{place}" for place in range(400))
    nb = parse(f"{PAGE}```yaml claim=c\nruns: [base, {sides}]\nfigure: best\nat_most: 1\n```\n")
    with pytest.raises(ConfigError, match="is a claim that is too long to be recorded"):
        claim_locks.claim_tags(nb, "base", page.description)
