"""Looks at a claim: their levels, which of them count, and how often verdicts are wrong when seeds are added."""

import json
import random
from collections.abc import Mapping

import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from scipy.special import ndtri

from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook.claims import claim_locks
from scalebook.training.notebook.claims.claim_table import lock_words
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import Judgement, judge_all
from scalebook.training.notebook.claims.looks import (
    FIRST,
    OTHER_RUNS,
    ClaimLook,
    History,
    JudgedCell,
    history,
    level_of,
    spent,
)
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader
from tests.training.notebook.claims import test_claim_locks
from tests.training.notebook.claims.coverage import Adding, add_seeds, skewed
from tests.training.notebook.claims.test_claim_locks import CLAIM, PAGE, Page
from tests.training.notebook.claims.test_judging import reaching
from tests.training.tracking.recorded import record

page = test_claim_locks.page


# --- levels ----------------------------------------------------------------------------------------------------------


def test_the_first_look_spends_most_and_is_judged_at_that_level() -> None:
    assert level_of(0.05) == pytest.approx(0.05 * FIRST)
    assert [spent(()), spent((2.0,)), spent((2.0, 2.0))] == pytest.approx([0.8, 0.9, 0.95])


def test_other_runs_may_spend_only_what_no_earlier_look_has_spent() -> None:
    assert level_of(0.05, (OTHER_RUNS,)) == pytest.approx(0.05 * 0.1)
    assert level_of(0.05, (OTHER_RUNS,)) < level_of(0.05, (2.0,)), "runs that were judged before count less"


def test_a_sum_is_beyond_its_levels_as_often_as_is_spent() -> None:
    """Sums of normal numbers, looked at after each one from the third on: an independent check of the integration."""
    draws = np.random.default_rng(1).standard_normal((200_000, 16)).cumsum(axis=1)
    beyond = np.zeros(len(draws), bool)
    growths: tuple[float, ...] = ()
    for count in range(3, 17):
        growths = growths if count == 3 else (*growths, count / (count - 1))
        end = -ndtri(level_of(0.05, growths) / 2)
        beyond |= np.abs(draws[:, count - 1]) / np.sqrt(count) > end
        assert beyond.mean() == pytest.approx(0.05 * spent(growths), abs=0.0016)


# --- which looks count -----------------------------------------------------------------------------------------------


def look(when: float, **cells: tuple[int, str]) -> ClaimLook:
    return ClaimLook("c", {name: JudgedCell(seeds, runs) for name, (seeds, runs) in cells.items()}, when)


def searched(when: float, seeds: int, runs: str) -> ClaimLook:
    """At a search whose best point has these runs."""
    return ClaimLook("c", {"a": JudgedCell(seeds, runs, searched=True)}, when)


THREE = look(1, a=(3, "1 2 3"), b=(3, "4 5 6"))
FIVE = look(2, a=(5, "1 2 3 7 8"), b=(5, "4 5 6 9 0"))


@pytest.mark.parametrize(
    ("looks", "present", "expected"),
    [
        ([], None, History()),
        ([], THREE, History((3,))),
        ([THREE], THREE, History((3,))),
        ([THREE], FIVE, History((3, 5), (5 / 3,))),
        ([FIVE, THREE], FIVE, History((3, 5), (5 / 3,))),
        ([THREE, FIVE], THREE, History((3,))),
        ([THREE, FIVE], None, History((3, 5), (5 / 3,))),
        ([THREE], look(2, a=(3, "1 2 x"), b=(3, "4 5 6")), History((3, 3), (OTHER_RUNS,))),
        ([FIVE], look(3, a=(4, "1 2 3 7"), b=(4, "4 5 6 9")), History((5, 4), (OTHER_RUNS,))),
        ([look(1, a=(3, ""))], THREE, History((3,))),
        ([look(1, a=(3, ""))], FIVE, History((3, 5), (5 / 3,))),
        ([look(1, a=(3, ""), b=(3, ""))], look(2, a=(6, ""), b=(4, "")), History((3, 4), (2.0,))),
        ([look(1, c=(3, ""))], THREE, History((3,))),
        ([searched(1, 3, "1 2 3")], searched(2, 5, "4 5 6 7 8"), History((3, 5), (5 / 3,))),
        ([searched(1, 3, "1 2 3")], searched(2, 3, "4 5 6"), History((3, 3), (OTHER_RUNS,))),
    ],
    ids=[
        "none",
        "first",
        "again",
        "more",
        "order",
        "back",
        "past",
        "rerun",
        "fewer",
        "side",
        "unknown",
        "uneven",
        "else",
        "seeds",
        "points",
    ],
)
def test_only_runs_that_were_not_judged_before_are_a_look(
    looks: list[ClaimLook], present: ClaimLook | None, expected: History
) -> None:
    assert history(looks, present, ["a", "b"]) == expected


# --- in a store ------------------------------------------------------------------------------------------------------


class Growing:
    """A notebook whose `repeats` grow; `slow` takes about twice the updates of `base`."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def text(self, seeds: int) -> str:
        return PAGE.replace("repeats: 3", f"repeats: {seeds}") + CLAIM

    def run(self, seeds: int, first: int = 1, tags: Mapping[str, str] | None = None) -> None:
        nb, page = parse(self.text(seeds)), self.page
        for cell, times in (("base", 1), ("slow", 2)):
            experiment = nb.experiment(cell)
            assert experiment is not None
            recorded = {**claim_locks.claim_tags(nb, cell, page.description), **(tags or {})}
            for seed in range(first, seeds + 1):
                record(
                    page.client, notebook="page.md", cell=cell, seed=seed, values=reaching(times * (4 + seed % 3)),
                    config_hash=config_hash(experiment.experiment(page.description)),
                    tags=recorded, start=seed * 1000,
                )  # fmt: skip

    def judge(self, seeds: int) -> Judgement:
        return self.page.judge(parse(self.text(seeds)))

    def recorded(self) -> list[ClaimLook]:
        runs = RunReader(self.page.workspace.tracking_uri()).runs(notebook="page.md", limit=500)
        texts = {key: text for run in runs for key, text in run.tags.items() if key.startswith(names.TAG_LOOK)}
        said = [json.loads(text) for text in texts.values()]
        looks = [ClaimLook(one["claim"], {key: JudgedCell(**cell) for key, cell in one["cells"].items()}, one["when"],
                      one["spent"], one["verdict"]) for one in said]  # fmt: skip
        return sorted(looks, key=lambda look: look.when)


@pytest.fixture
def growing(page: Page) -> Growing:
    return Growing(page)


def level(judgement: Judgement) -> float:
    claimed = judgement.rows[1].claimed
    assert claimed is not None
    return 1 - claimed.level


def test_another_claim_about_a_search_looks_at_other_points_of_it() -> None:
    """Both judge eight seeds once, whatever the order in which they are judged again."""

    def look(claim: str, runs: str, when: float) -> ClaimLook:
        return ClaimLook(claim, {"a": JudgedCell(8, runs, searched=True)}, when)

    first, second = look("first", "1 2", 1.0), look("second", "3 4", 2.0)
    for again in (first, second):
        assert history([first, second], again, ["a"]) == history([again], again, ["a"])
        assert history([first, second], again, ["a"]).growths == ()


def test_each_look_is_recorded_once_and_widens_the_interval(growing: Growing) -> None:
    growing.run(3)
    assert growing.recorded() == []
    assert [level(growing.judge(3)) for _ in range(2)] == pytest.approx([0.04, 0.04])
    (first,), found = growing.recorded(), growing.judge(3)
    assert (found.verdict, found.earlier_verdicts) == (first.verdict, ())
    assert [(cell.seeds, len(cell.runs.split())) for cell in first.cells.values()] == [(3, 3), (3, 3)]
    assert first.spent == pytest.approx(0.8)
    planned = growing.judge(5)
    assert planned.power is not None
    assert planned.looks == (3,)
    assert planned.earlier_verdicts == ((3, found.verdict),)
    assert "2 of" not in " ".join(row.why for row in growing.judge(5).rows), "a stage that is not complete"
    assert len(growing.recorded()) == 1
    growing.run(5, first=4)
    second = growing.judge(5)
    assert level(second) == pytest.approx(level_of(0.05, (5 / 3,)))
    assert second.looks == (3, 5)
    assert "This is look 2 at the data (numbers of seeds: 3, 5). The intervals allow for repeated looks." in lock_words(
        second
    )
    assert f"Earlier verdicts: {found.verdict} with 3 seeds." in lock_words(second)
    assert growing.judge(5).earlier_verdicts == ((3, found.verdict),), "the same runs again"
    assert [look.spent for look in growing.recorded()] == pytest.approx([0.8, 1 - 0.2 * 3 / 5])
    assert level(growing.judge(5)) == pytest.approx(level_of(0.05, (5 / 3,))), "the same runs again"
    assert level(growing.judge(3)) == pytest.approx(0.04), "as it was judged then"
    assert level(growing.judge(4)) == pytest.approx(level_of(0.05, (5 / 3, OTHER_RUNS))), "a part of judged runs"


def test_a_stage_that_nobody_looked_at_costs_nothing(growing: Growing) -> None:
    growing.run(3)
    growing.run(5, first=4)
    assert level(growing.judge(5)) == pytest.approx(0.04)


def test_runs_of_a_version_without_looks_were_judged_with_their_seeds(growing: Growing) -> None:
    nb = parse(growing.text(3))
    said = json.loads(claim_locks.claim_tags(nb, "base", growing.page.description)[f"{names.TAG_CLAIM}0"])
    assert said.pop("records_looks") is True
    growing.run(3, tags={f"{names.TAG_CLAIM}0": json.dumps(said)})
    assert level(growing.judge(3)) == pytest.approx(0.04)
    growing.run(6, first=4)
    assert level(growing.judge(6)) == pytest.approx(level_of(0.05, (2.0,)))


def test_a_look_survives_new_runs_of_the_same_seeds_and_a_deleted_run(growing: Growing) -> None:
    growing.run(3)
    growing.judge(3)
    growing.run(3)
    assert level(growing.judge(3)) == pytest.approx(level_of(0.05, (OTHER_RUNS,)))
    for run in RunReader(growing.page.workspace.tracking_uri()).runs(notebook="page.md", limit=500):
        growing.page.client.delete_run(run.id)
    growing.run(3)
    assert level(growing.judge(3)) == pytest.approx(level_of(0.05, (OTHER_RUNS, OTHER_RUNS)))


def test_a_store_that_cannot_be_written_is_reported(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    growing.run(3)
    nb, page = parse(growing.text(3)), growing.page
    reader = RunReader(page.workspace.tracking_uri())

    def refused(*_: object) -> None:
        raise MlflowException("attempt to write a readonly database")

    monkeypatch.setattr(reader.client, "set_tag", refused)
    found = judge_all(EvidenceReader(page.workspace, reader, "page.md", nb, page.description))["c"]
    assert "This look could not be recorded (attempt to write a readonly database)" in " ".join(lock_words(found))


# --- how often verdicts are wrong; coverage.py has more ---------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        Adding(3, False, 16),
        Adding(5, False, 12, common=0.5),
        pytest.param(Adding(3, True, 12), marks=pytest.mark.thorough),
    ],
    ids=["each", "pairs", "advice"],
)
def test_adding_seeds_until_a_claim_is_resolved_is_wrong_no_more_often(cell: Adding) -> None:
    """At 5 % for each look it is wrong in 10 % on each side."""
    found = add_seeds(cell, 300, random.Random(2))
    assert max(found.wrong, found.refuted) <= 0.055
    assert found.covered >= 0.92


def test_skewed_logs_with_unequal_spread_are_a_known_limit() -> None:
    found = skewed(8, (0.3, 0.05), 1000, random.Random(2))
    assert 0.06 < found.wrong < 0.13
    assert found.refuted < 0.01
    assert skewed(8, (0.3, 0.3), 1000, random.Random(2)).covered > 0.93
