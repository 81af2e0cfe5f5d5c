"""Results in a notebook's text: written by runs between two comments, kept where there are none, and never typed."""

import pytest

from scalebook.training.cli.notebook import main
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.claims import written_tables
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.written_tables import Table
from scalebook.training.notebook.export.exported_notes import rendered
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking.run_reader import RunReader
from tests.training.notebook.claims.test_judging import EXPERIMENTS, Store, told

__all__ = ["told"]
CLAIM = "```yaml claim=twice\nruns: slow\nagainst: base\nfigure: updates\ntarget: 0.5\nat_least: 1.9\n```\n"
COMPARISON = "```yaml comparison=both\nruns: [base, slow]\nmetric: val/loss\ntarget: 0.5\n```\n"
PLACE = "# What it found\r\n\r\n<!-- results: twice -->\r\n<!-- end of results -->\r\n\r\nNow change something.\r\n"


def place(name: str) -> str:
    return f"<!-- results: {name} -->\n<!-- end of results -->\n"


def tables(told: Store, nb: Notebook) -> dict[str, Table]:
    reader = RunReader(told.workspace.tracking_uri())
    return written_tables.tables(EvidenceReader(told.workspace, reader, "first-steps.md", nb, told.description))


def said(nb: Notebook, by_name: dict[str, Table]) -> list[str]:
    return [f"{one.line}: {one.cell_name}: {one.problem}" for one in written_tables.problems(nb, by_name)]


def test_results_are_written_where_they_have_a_place(told: Store) -> None:
    """Every other character stays, line ends are those of the note, and once more changes nothing."""
    nb = parse((EXPERIMENTS + CLAIM).replace("\n", "\r\n") + PLACE)
    now = tables(told, nb)
    done = written_tables.fill(nb, now)
    before, begin, rest = done.text.partition("<!-- results: twice -->\r\n")
    body, end, after = rest.partition("<!-- end of results: runs ")
    assert before + begin + "<!-- end of results -->\r\n" + after.partition("-->\r\n")[2] == nb.text
    assert end
    assert body.replace("\r\n", "\n") == (
        "\nupdates to val/loss 0.5: at least 1.9 x that of base: **supported**\n\n"
        "| experiment | seeds | updates | ratio | 95 % interval | verdict |\n"
        "| --- | ---: | ---: | ---: | ---: | --- |\n"
        "| base | 3 | 60 ± 56 | - | - | baseline |\n"
        "| slow | 3 | 120 ± 112 | 2.00 | 2.00 – 2.00 | supported |\n\n"
    )
    assert written_tables.fill(done, now) == done
    assert said(done, now) == []
    assert said(done, {}) == [], "of runs that are not here nothing is known"


def test_a_comparison_is_written_too(told: Store) -> None:
    nb = parse(f"{EXPERIMENTS}{COMPARISON}{place('both')}")
    done = written_tables.fill(nb, tables(told, nb)).text
    assert (
        "val/loss (lower is better, target 0.5); mean of 3 seeds ± half the width of the 95 % interval\n\n| "
        "experiment |" in done
    )
    assert "\n| slow | " in done


def test_what_is_not_of_these_runs_is_said(told: Store) -> None:
    nb = parse(EXPERIMENTS + CLAIM + place("twice"))
    now, line = tables(told, nb), EXPERIMENTS.count("\n") + CLAIM.count("\n") + 1
    fix = "Run `scalebook notebook tables FILE` to write the results."
    assert said(nb, now) == [f"{line}: results of twice: results: are not written. {fix}"]
    done = written_tables.fill(nb, now).text
    typed = parse(done.replace("120 ± 112", "110 ± 112"))
    assert said(typed, {}) == [f"{line}: results of twice: results: were changed by hand. {fix}"]
    by_hand = parse(nb.text.replace("<!-- end", "\n| slow | 2.0 |\n\n<!-- end"))
    assert said(by_hand, {}) == [f"{line}: results of twice: results: were not written by runs. {fix}"]
    other = {"twice": Table(now["twice"].text, "0" * 8)}
    assert said(parse(done), other) == [f"{line}: results of twice: results: are from other runs. {fix}"]
    changed = parse(done.replace("at_least: 1.9", "at_least: 1.8"))
    assert said(changed, tables(told, changed)) == [
        f"{line}: results of twice: results: differ from what these runs show. {fix}"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (place("twise"), "have a name that is not a claim or comparison of this notebook. Did you mean `twice`?"),
        ("<!-- results: twice -->\n\nno end\n", "have no end. Add <!-- end of results -->"),
    ],
)
def test_a_place_that_is_none_is_refused(told: Store, text: str, words: str) -> None:
    nb = parse(EXPERIMENTS + CLAIM + text)
    (problem,) = written_tables.problems(nb, tables(told, nb))
    assert words in str(problem.problem)
    assert problem.problem.severity == "error"
    assert written_tables.fill(nb, tables(told, nb)) == nb


def test_a_place_shown_as_code_is_none_and_without_runs_what_stands_there_stays(told: Store) -> None:
    nb = parse(f"{EXPERIMENTS}{CLAIM}~~~text\n{place('twice')}~~~\n")
    assert written_tables.regions(nb) == []
    unrun = parse(
        EXPERIMENTS
        + CLAIM.replace("slow", "unrun").replace("base", "unrun")
        + place("twice").replace("\n", "\n\nkept\n", 1)
    )
    assert written_tables.fill(unrun, {"twice": Table("new", "")}) == unrun


def test_readers_do_not_see_the_comments() -> None:
    note = f"# Found\n\n{place('twice')}\n| a |\n| --- |\n| b |\n"
    read = written_tables.without_marks(note)
    assert "<!--" not in read
    assert read.count("\n") == note.count("\n")
    assert "<table>" in rendered(read)
    assert written_tables.without_marks("<!-- a remark -->\n") == "<!-- a remark -->\n"


def test_the_command_writes_them_and_check_says_what_is_wrong(told: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = told.workspace.root / "first-steps.md"
    path.write_text(EXPERIMENTS + CLAIM + place("twice"), encoding="utf-8")
    assert main(["check", str(path)]) == 0
    checked = capsys.readouterr()
    assert "warning: results of twice: results: are not written." in checked.err
    assert (
        "twice: supported. Runs of base, slow do not record which claims the notebook had when these runs started."
    ) in checked.out
    assert main(["tables", str(path)]) == 0
    assert capsys.readouterr().out == f"Wrote results into {path}.\n"
    assert "| slow | 3 | 120 ± 112 | 2.00 | 2.00 – 2.00 | supported |" in path.read_text(encoding="utf-8")
    assert main(["tables", str(path)]) == 0
    assert main(["check", str(path)]) == 0
    again = capsys.readouterr()
    assert again.err == ""
    assert "no problems" in again.out
