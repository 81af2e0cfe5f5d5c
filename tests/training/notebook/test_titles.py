import pytest

from scalebook.training.errors import ConfigError
from scalebook.training.notebook.parse import parse
from scalebook.training.notebook.titles import retitled

CELL = "```yaml experiment=a\nconfig: {}\n```\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("---\ntitle: Old # why\nlang: en\n---\n# Old\n", '---\ntitle: "It: new" # why\nlang: en\n---\n# Old\n'),
        ("---\nlang: en\n---\n\nText.\n", '---\nlang: en\ntitle: "It: new"\n---\n\nText.\n'),
        ("Text.\r\n", '---\r\ntitle: "It: new"\r\n---\r\nText.\r\n'),
        ("\ufeffText.\n", '\ufeff---\ntitle: "It: new"\n---\nText.\n'),
        (f"{CELL}\nText.\n\n# Old\n\nMore.\n", f"{CELL}\nText.\n\n# It: new\n\nMore.\n"),
        ("Old\n===\n", '---\ntitle: "It: new"\n---\nOld\n===\n'),
        ("", '---\ntitle: "It: new"\n---\n'),
        ("---\n# a comment\n---\nText.\n", '---\ntitle: "It: new"\n# a comment\n---\nText.\n'),
    ],
)
def test_the_title_changes_where_it_stands_and_nothing_else(before: str, after: str) -> None:
    changed = retitled(parse(before, "file"), "It: new")
    assert (changed.text, changed.title) == (after, "It: new")


def test_the_same_title_changes_nothing() -> None:
    nb = parse("# Old\n")
    assert retitled(nb, "Old") is nb


def test_front_matter_that_cannot_be_read_is_left_alone() -> None:
    with pytest.raises(ConfigError, match="front matter"):
        retitled(parse("---\ntitle: [\n---\nText.\n"), "New")
