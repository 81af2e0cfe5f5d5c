from itertools import product

import pytest

from tests.covering import covering

pytest_plugins = "pytester"


def test_each_value_stands_in_one_case() -> None:
    cases = [{("rule", rule), ("host", host), ("one", "1")} for rule, host in product("abc", "xy")]
    chosen = covering(cases)
    assert len(chosen) == 3
    assert set().union(*(cases[number] for number in chosen)) == set().union(*cases)


def test_the_others_are_marked_and_run_where_nothing_is_chosen(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest("from tests.covering import leave_others as pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n  each_once\n  thorough\n  drill\n")
    pytester.makepyfile("""
        import pytest
        LAST = pytest.param("c", marks=pytest.mark.thorough)

        @pytest.mark.each_once
        @pytest.mark.parametrize("host", ["x", "y"])
        @pytest.mark.parametrize("rule", ["a", "b", LAST])
        def test_product(rule, host): ...

        @pytest.mark.parametrize("rule", "abc")
        def test_alone(rule): ...
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=9)
    pytester.runpytest_inprocess("-m", "not thorough").assert_outcomes(passed=5, deselected=4)
    pytester.runpytest_inprocess("-m", "thorough").assert_outcomes(passed=4, deselected=5)


def test_of_cases_alike_a_third_is_run_and_tests_take_turns(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest("from tests.covering import leave_others as pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n  alike\n  thorough\n  drill\n")
    pytester.makepyfile("""
        import pytest
        pytestmark = pytest.mark.alike

        @pytest.mark.parametrize("rule", "abc")
        def test_first(rule): ...

        @pytest.mark.parametrize("rule", "abc")
        def test_second(rule): ...

        @pytest.mark.parametrize("rule", [*"abcdef", pytest.param("g", marks=pytest.mark.drill)])
        def test_third(rule): ...

        def test_without_cases(): ...
    """)
    calls = pytester.inline_run("-m", "not thorough and not drill").getcalls("pytest_runtest_call")
    names = ["first[a]", "second[b]", "third[c]", "third[d]", "without_cases"]
    assert sorted(call.item.name.removeprefix("test_") for call in calls) == names
    pytester.runpytest_inprocess("-m", "thorough").assert_outcomes(passed=8, deselected=6)
