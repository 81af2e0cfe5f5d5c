import re

import pytest

from docs.generate import api, commands, metrics, tables
from scalebook.app.help.data import (
    ADDRESS,
    DOCS,
    FENCE,
    GENERATED,
    MOST,
    SECTIONS,
    START,
    HelpPage,
    documents,
    generated,
    rows,
)
from scalebook.app.navigation import HELP
from scalebook.training.experiments.description import Description
from tests.docs.blocks import DOCS as WRITTEN


def outside_code(text: str) -> str:
    return FENCE.sub("", text)


@pytest.mark.parametrize("name", sorted(documents()))
def test_a_document_has_neither_pictures_nor_links_that_lead_nowhere(name: str) -> None:
    text = outside_code(documents()[name].shown())
    assert "![" not in text
    assert set(re.findall(r"\]\(([a-z]*)", text)) <= {"https", "http", ""}
    assert set(re.findall(r"\?document=([^\"#]*)", text)) <= documents().keys()


def test_every_document_has_a_title_and_its_place() -> None:
    every = documents()
    written = {path.relative_to(WRITTEN).with_suffix("").as_posix() for path in WRITTEN.rglob("*.md")}
    assert {name for name in written if not name.startswith("design/")} | GENERATED.keys() == set(every)
    assert not GENERATED.keys() & written
    assert [name for name, document in every.items() if not document.source.startswith("# ")] == []
    assert next(iter(every)) == START
    assert DOCS.resolve() == WRITTEN.resolve()


def test_the_reference_is_that_of_the_site_and_its_configs_have_the_workspace_s_classes(
    description: Description,
) -> None:
    """Without links to pages for classes, which only the site has."""
    known = {name: generated(name, lambda: description) for name in GENERATED}
    assert "### MLPClassifier" in known["reference/config"].source
    assert known["reference/cli"].source == commands.page()
    assert known["reference/api"].source == api.page(linked=False)
    assert "| `scalebook.AsyncPS` |" in known["reference/api"].source
    assert "(api/" not in known["reference/api"].source
    assert known["reference/metrics"].source == metrics.page()
    assert known["benchmarks/tables"].source == tables.page()
    for name, document in known.items():
        assert document.title == documents()[name].title
        assert set(re.findall(r"\?document=([^\"#]*)", document.shown())) <= documents().keys()


def test_links_stay_in_this_tab_and_code_is_left_alone() -> None:
    document = HelpPage(
        "how-to/gpus",
        "# GPUs\n\n![A picture](../screenshots/run.png)\n\n[Rules](../concepts/staleness.md#the-rule), "
        "[a notebook](../../notebooks/first-steps.md), [Ray](https://www.ray.io), [here](#part)\n"
        "\n````md\n[Rules](x.md)\n```\n![y](y.png)\n```\n````\n\n## Part\n",
    )
    shown = document.shown()
    assert '<a href="/help?document=concepts/staleness#the-rule" target="_self">Rules</a>' in shown
    assert "a notebook (`notebooks/first-steps.md`), [Ray](https://www.ray.io), [here](#part)" in shown
    assert "\n````md\n[Rules](x.md)\n```\n![y](y.png)\n```\n````\n" in shown
    assert "A picture" not in shown
    assert document.contents() == [("Part", "part")]


def test_pages_of_a_section_stand_in_the_order_of_its_index() -> None:
    every = documents()
    heads, beside = rows(every["tutorial/own-model"])
    assert [one.name for one in heads] == [
        START,
        *(f"{section}/index" for section in SECTIONS if f"{section}/index" in every),
    ]
    assert [one.name for one in beside] == [
        "tutorial/first-run", "tutorial/own-model", "tutorial/ask", "tutorial/first-search",
        "tutorial/how-many-workers",
    ]  # fmt: skip
    assert all(len(row) <= MOST for document in every.values() for row in rows(document))


def test_it_has_an_address() -> None:
    assert HELP.url() == ADDRESS
