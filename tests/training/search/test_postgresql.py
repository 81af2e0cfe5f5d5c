"""A study in a real PostgreSQL, which goes away in between."""

from collections.abc import Callable, Iterator

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.search.types import SearchSpec
from scalebook.training.search.study.storage import StorageLost
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.study_reader import forget, read_study
from tests.training.search import postgres
from tests.training.search.postgres import PASSWORD, Server
from tests.training.search.studies import BATCH, LOSS, RATE, SECONDS, STRATEGY, loss, run, search

Opened = Callable[..., Study]
SPEC = search(BATCH, RATE, STRATEGY, points=({"batch_size": 64},))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres.server() as made:
        yield made


@pytest.fixture
def opened(url: str) -> Iterator[Opened]:
    """`Study.open` in that server; all are closed afterwards."""
    made: list[Study] = []

    def open_one(name: str, spec: SearchSpec = SPEC) -> Study:
        made.append(Study.open(url, name, spec))
        return made[-1]

    yield open_one
    for one in made:
        one.close()
    forget()


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    return f"{server.url}/studies"


def test_a_study_is_interrupted_and_goes_on(server: Server, url: str, opened: Opened) -> None:
    study = opened("search")
    first = run(study, 12)
    asked = study.ask()
    study.update_trial(asked.number, runs={1: "aa"})
    study.report(asked.number, 100, 1.0)
    study.infeasible(study.ask().number, "out of memory", "no room")
    study.fail(study.ask().number, "killed", "signal 9")
    server.stop()
    with pytest.raises(StorageLost, match="cannot be used") as raised:
        study.report(asked.number, 200, 0.5)
    assert PASSWORD not in str(raised.value)
    with pytest.raises(ConfigError, match=r"storage: .*cannot be used.*Start the server") as refused:
        Study.open(url, "search", SPEC)
    assert PASSWORD not in str(refused.value)
    server.start()

    study.report(asked.number, 200, 0.5)  # the one that was open finds the server again
    later = opened("search")
    assert later.running() == [asked]
    later.report(asked.number, 300, 0.25)
    later.finish(asked.number, [loss(asked.point)])
    run(later, 3)
    records = read_study(url, "search", SPEC)
    assert records == later.records()
    assert [one.point for one in records[:13]] == [one.point for one in [*first, asked]]
    assert [one.state for one in records] == ["finished"] * 13 + ["infeasible", "failed"] + ["finished"] * 3
    assert records[12].curve == [(100, 1.0), (200, 0.5), (300, 0.25)]
    assert records[12].runs == {1: "aa"}
    assert [one.given for one in records] == [True] + [False] * 17
    assert len({str(one.point) for one in records}) == 18


def test_pages_see_what_a_driver_tells(url: str, opened: Opened) -> None:
    study = opened("live")
    assert [one.state for one in read_study(url, "live", SPEC)] == ["waiting"]
    asked = study.ask()
    study.report(asked.number, 100, 0.5)
    (running,) = read_study(url, "live", SPEC)
    assert (running.state, running.curve) == ("running", [(100, 0.5)])
    study.finish(asked.number, [0.1])
    assert [one.values for one in read_study(url, "live", SPEC)] == [(0.1,)]


def test_missed_targets_and_two_objectives_are_kept(url: str, opened: Opened) -> None:
    spec = search(BATCH, RATE, objectives=(LOSS, SECONDS), target=0.1, sampler="random")
    study = opened("two", spec)
    study.finish(study.ask().number, [0.5, float("inf")])
    study.prune(study.ask().number, "by hand")
    assert [(one.state, one.values) for one in read_study(url, "two", spec)] == [
        ("finished", (0.5, float("inf"))), ("pruned", ()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (PASSWORD, "wrong-one", "password authentication failed"),
        ("/studies", "/nothing", 'database "nothing" does not exist'),
    ],
)
def test_a_wrong_address_is_explained_without_the_password(url: str, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        Study.open(url.replace(old, new), "search", SPEC)
    assert raised.value.problem.key == "storage"
    assert PASSWORD not in str(raised.value)
    assert "wrong-one" not in str(raised.value)
