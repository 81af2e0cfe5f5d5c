"""Tests in forks of pytest's process: the same outcomes, and nobody who dies or is interrupted is passed over."""

from pathlib import Path

import pytest

pytest_plugins = "pytester"
ROOT = Path(__file__).parents[1]
PIDS = """
    import os, pathlib, pytest
    HERE = pathlib.Path(__file__).parent

    @pytest.fixture(scope="session")
    def pid():
        yield os.getpid()
        (HERE / f"ended-{os.getpid()}").touch()
"""


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "tests.forks", "-p", "no:cacheprovider", "--forks", "2", *words)


@pytest.fixture(autouse=True)
def bare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("SCALEBOOK_PREPARED", raising=False)
    pytester.makeconftest(PIDS)


def test_a_file_is_run_by_one_of_two_processes_and_what_a_session_has_lives_on(pytester: pytest.Pytester) -> None:
    both = """
        import os, pathlib, time

        def test_first(pid, tmp_path):
            pathlib.Path("{0}-began").touch()
            while not pathlib.Path("{1}-began").exists():
                time.sleep(0.01)

        def test_second(pid, tmp_path):
            assert pid == os.getpid()
            pathlib.Path(f"{0}-{{pid}}-{{tmp_path.parent.name}}").touch()
    """
    pytester.makepyfile(test_a=both.format("a", "b"), test_b=both.format("b", "a"), test_c="def test_it(pid): ...")
    run(pytester).assert_outcomes(passed=5)
    runs = {path.name[0]: path.name.split("-")[1:] for path in pytester.path.glob("[ab]-*-fork*")}
    (one, its_folder), (other, another) = runs["a"], runs["b"]
    assert one != other
    assert {its_folder, another} == {"fork1", "fork2"}
    assert {path.name for path in pytester.path.glob("ended-*")} == {f"ended-{one}", f"ended-{other}"}


def test_failures_are_told_as_without_forks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.fixture
        def broken():
            yield
            raise OSError("afterwards")

        def test_fine(broken): ...

        @pytest.mark.parametrize("x", [1, 2])
        def test_it(x):
            print("printed by", x)
            assert x == 1

        @pytest.mark.skip
        def test_left(): ...
    """)
    result = run(pytester, "-rA")
    result.assert_outcomes(passed=2, failed=1, errors=1, skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["E * OSError: afterwards", "*assert 2 == 1", "printed by 2"])


def test_one_that_ends_its_process_fails_and_the_others_are_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_a="""
            import os, time

            def test_before(): ...

            def test_that_dies():
                if not os.fork():
                    time.sleep(10)  # and holds all that was open
                os._exit(0)

            def test_after(): ...
        """,
        test_b="def test_it(): ...",
    )
    result = run(pytester)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_a.py::test_that_dies - The process that ran this test has died."])


def test_what_fails_at_the_end_of_a_process_fails_its_last_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.fixture(scope="session")
        def broken():
            yield
            raise OSError("at the very end")

        def test_first(broken): ...

        def test_last(): ...
    """)
    result = run(pytester)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["OSError: at the very end", "ERROR test_*.py::test_last*"])


def test_the_first_failure_interrupts_others_who_end_what_they_have(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_a="""
            import pathlib, time

            def test_that_waits(pid):
                pathlib.Path("began").touch()
                time.sleep(60)
        """,
        test_b="""
            import pathlib, time

            def test_that_fails():
                while not pathlib.Path("began").exists():
                    time.sleep(0.01)
                assert False
        """,
    )
    result = run(pytester, "-x")
    result.assert_outcomes(failed=1)
    assert len([*pytester.path.glob("ended-*")]) == 1
    assert result.duration < 30


def test_files_that_wait_are_for_the_first_process_and_at_last_for_others(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  waits\n  plain")
    each = """
        import pathlib, pytest, time

        @pytest.mark.{mark}
        def test_it(tmp_path):
            pathlib.Path(f"{{__name__}}-{{tmp_path.parent.name}}").touch()
            while {until_last} and not any(pathlib.Path().glob("test_d-*")):
                time.sleep(0.01)
    """
    plain, waiting = (each.format(mark=mark, until_last=False) for mark in ("plain", "waits"))
    pytester.makepyfile(test_a=plain, test_b=plain, test_c=each.format(mark="waits", until_last=True), test_d=waiting)
    run(pytester).assert_outcomes(passed=4)
    ran = {path.name for path in pytester.path.glob("test_?-*")}
    assert ran == {"test_a-fork2", "test_b-fork2", "test_c-fork1", "test_d-fork2"}


def test_what_is_alone_is_run_by_one_process_when_all_others_have_ended(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = alone")
    both = """
        import os, pathlib, pytest

        @pytest.mark.alone
        def test_alone(pid):
            assert len([*pathlib.Path().glob("ended-*")]) == 2
            pathlib.Path(f"alone-{os.getpid()}").touch()

        def test_beside(pid): ...
    """
    pytester.makepyfile(test_a=both, test_b=both)
    run(pytester).assert_outcomes(passed=4)
    assert len([*pytester.path.glob("alone-*")]) == 1
