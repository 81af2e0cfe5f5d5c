"""What changed from one state of a notebook to the next, in words."""

import pytest

from scalebook.training.notebook import edit
from scalebook.training.notebook.notebook_changes import changes
from scalebook.training.notebook.parse import parse
from tests.training.notebook.test_merge import PAGE, swap

CLAIM = "```yaml claim=faster\nruns: [two]\nagainst: one\nfigure: best\nat_most: 1.0\n```\n"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (PAGE, []),
        (swap(("model: A", "model: AA")), ["experiment one: model changed"]),
        (swap(("config: {model: A}", "repeats: 3\nconfig: {model: A}")), ["experiment one: repeats changed"]),
        (swap(("config: {model: A}", "config: {model: A}  # why")), ["experiment one: comments changed"]),
        (swap(("config: {model: A}", "config: [")), ["experiment one: text changed"]),
        (swap(("Does it help?", "Does it hurt?")), ["note “Question” changed"]),
        (swap(("# Question\n\nDoes it help?", "Something else.")), ["note “Something else.” changed"]),
        (swap(("title: T", "title: U")), ["title changed to U"]),
        (f"{PAGE}\n{CLAIM}", ["claim faster added"]),
        (f"{PAGE}\n\n", ["blank lines changed"]),
        (
            edit.remove(parse(PAGE), 3).text,
            ["experiment two deleted", "note “What came of it.” changed", "note “The end.” deleted"],
        ),
        (edit.rename(parse(PAGE), "one", "uno").text, ["experiment one renamed to uno"]),
        (f"{PAGE}\n{CLAIM}\nAt last.\n", ["claim faster added", "note “At last.” added"]),
        (swap(("What came of it.\n\n", "")), ["note “What came of it.” deleted"]),
        (edit.move(parse(PAGE), 2, 4).text, ["note “The end.” changed", "note “What came of it.” deleted"]),
        ("# Question\n" * 100_000, ["the text changed"]),
    ],
)  # fmt: skip
def test_each_change_names_the_cell_and_its_kind(after: str, said: list[str]) -> None:
    assert changes(PAGE, after) == said


def test_cells_that_only_moved() -> None:
    without_notes = "```yaml experiment=a\nconfig: {}\n```\n\n```yaml experiment=b\nconfig: {}\n```\n"
    assert changes(without_notes, edit.move(parse(without_notes), 0, 1).text) == ["cells moved"]
