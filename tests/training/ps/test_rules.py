from training.ps.rules import RULES, Arrival, Async, Verdict


def test_async_applies_whatever_the_staleness() -> None:
    rule = Async()
    assert [rule.decide(Arrival(0, base, 9)) for base in (9, 5, 0)] == [Verdict.APPLY] * 3
    assert not rule.is_last(10**9)


def test_a_budget_of_updates_is_met_exactly() -> None:
    rule = RULES["async"](max_updates=3)
    version = 0
    for _ in range(5):
        version += rule.decide(Arrival(0, version, version)) is Verdict.APPLY
    assert version == 3
    assert rule.is_last(3)
    assert not rule.is_last(2)


def test_staleness_is_what_others_did_meanwhile() -> None:
    assert Arrival(worker=1, base_version=4, version=9).staleness == 5
