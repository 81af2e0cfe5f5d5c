"""Every page, as somebody sees it who looks closely: what it is called, whether it can be read and reached by keys,
whether the browser's console stays empty. Nothing is trained; the pages show `tests.e2e.gallery`."""

import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect

from scalebook.app.navigation import PLACES
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
from tests.e2e.audit import SERIOUS, findings
from tests.e2e.conftest import Served, end_supervisor, serve
from tests.e2e.gallery import Gallery, ask_for_trust, ask_no_more, filled
from tests.e2e.screenshots import settle
from tests.shared_files import Prepared

pytestmark = pytest.mark.thorough

PAGES = {
    "notebook": "Does staleness hurt?",
    "notebook-empty": "Nothing yet",
    "notebook-broken": "Half written",
    "notebook-crowd": "Too many",
    "compose": "New experiment · Does staleness hurt?",
    "compose-virtual": "Edit pixelcnn-async-16 · Does staleness hurt?",
    "compose-cell": "Edit pixelcnn-async-2 · Does staleness hurt?",
    "runs": "Runs",
    "run": "pixelcnn-async-2 · seed 1",
    "run-live": "pixelcnn-single · seed 1",
    "run-failed": "pixelcnn-ddp-2 · seed 2",
    "run-trial": "batch-size · seed 1",
    "run-virtual": "pixelcnn-async-16 · seed 1",
    "searches": "Searches",
    "search-setup": "New search · Does staleness hurt?",
    "search-map": "batch-size · Search",
    "search-curves": "batch-size · Search",
    "search-parallel": "batch-size · Search",
    "search-importance": "batch-size · Search",
    "search-pareto": "batch-size · Search",
    "search-table": "batch-size · Search",
    "compare": "Compare",
    "compare-virtual": "Compare",
    "compare-empty": "Compare",
    "plan": "Plan pixelcnn-async-2 · Does staleness hurt?",
    "plan-measured": "Plan pixelcnn-async-2 · Does staleness hurt?",
    "plan-yaml": "Plan",
    "help": "Help",
    "help-document": "Staleness and rules",
}
TALL = ("notebook", "compose", "compose-cell", "runs", "run", "search-map", "search-table")
"""Where more stands below the fold, of which axe-core judges no colours."""
NOT_OURS = (re.compile("GL Driver Message"),)
"""Of a Chromium that draws without a GPU, where parallel coordinates are drawn."""
HEADINGS = ("heading-order", "page-has-heading-one", "empty-heading")
"""The rules of axe-core on them, which are not serious to it."""
NAME = """(() => { const one = document.activeElement;
  return (one.getAttribute('aria-label') || one.labels?.[0]?.innerText || one.innerText || '')
    .trim().split('\\n').pop(); })()"""
ORDER = ("Model", "Data", "Strategy", "Workers", "Batch size per worker", "Optimizer", "Learning rate", "Epochs", "Run")
SEEN = """one => {
  let opacity = 1;
  for (; one; one = one.parentElement) opacity *= getComputedStyle(one).opacity;
  return opacity;
}"""
CONTRAST = """([one, other]) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((each) => each / 255)
      .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[tuple[Served, Gallery]]:
    workspace = prepared.into(Workspace(tmp_path_factory.mktemp("gallery")))
    with filled(workspace, trials=80) as found:
        served = serve(workspace)
        yield served, found
        served.end()
        end_supervisor(workspace)


@pytest.fixture(scope="module")
def tab(browser: Browser, browser_context_args: dict[str, Any], gallery: tuple[Served, Gallery]) -> Iterator[Page]:
    """One for all of them: a new one would load the libraries anew."""
    context = browser.new_context(**browser_context_args)
    gallery[0].let_in(context)
    yield context.new_page()
    context.close()


@pytest.fixture
def shown(tab: Page, gallery: tuple[Served, Gallery]) -> Iterator[tuple[Page, str, Gallery]]:
    """A page of a browser that knows the gallery, its address, and what is in it. Its console stays empty."""
    page, (served, found) = tab, gallery
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.emulate_media(color_scheme="light")
    said: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("warning", "error") and not any(one.search(message.text) for one in NOT_OURS):
            said.append(f"{message.type}: {message.text}")

    def fail(error: Error) -> None:
        said.append(f"uncaught: {error}")

    page.on("console", listen)
    page.on("pageerror", fail)
    yield page, served.addresses.app, found
    page.remove_listener("console", listen)
    page.remove_listener("pageerror", fail)
    assert said == []


Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")


def wrong(page: Page) -> list[str]:
    """What is serious, and headings that skip an order or say nothing."""
    return [str(one) for one in findings(page) if one.impact in SERIOUS or one.rule in HEADINGS]


@pytest.mark.parametrize(("name", "theme"), [(name, theme) for name in PAGES for theme in THEMES])
def test_a_page_can_be_read_and_says_what_it_is(shown: tuple[Page, str, Gallery], name: str, theme: Theme) -> None:
    """In this theme, and at 400 pixels without moving sideways; with nothing left of Streamlit's own face."""
    page, address, found = shown
    page.emulate_media(color_scheme=theme)
    if name in TALL:
        page.set_viewport_size({"width": 1280, "height": 2600})
    page.goto(address + found.addresses()[name])
    expect(page).to_have_title(f"{PAGES[name]} · Scalebook")
    expect(page.locator(".stApp")).to_have_css("color-scheme", theme)
    settle(page)
    expect(page.locator("[data-testid=stMainMenu]")).to_have_count(0)
    expect(page.get_by_text("Deploy")).to_have_count(0)
    assert wrong(page) == []
    page.set_viewport_size({"width": 400, "height": 860})
    page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400", timeout=20_000)


def test_no_page_is_left_out(shown: tuple[Page, str, Gallery]) -> None:
    """Neither a view of the gallery, nor a page of the app. With a page, since pytest-playwright puts tests without one
    last, for which the gallery would be served again."""
    addresses = shown[2].addresses()
    assert set(PAGES) == set(addresses)
    assert {urlsplit(address).path.strip("/") for address in addresses.values()} == {place.path for place in PLACES}


def test_the_question_of_trust_can_be_read(shown: tuple[Page, str, Gallery], gallery: tuple[Served, Gallery]) -> None:
    page, address, found = shown
    workspace = gallery[0].workspace
    try:
        ask_for_trust(workspace)
        page.goto(address + found.addresses()["compare-empty"])
        expect(page.get_by_text("This folder wants to run its own code")).to_be_visible()
        expect(page.locator(".sb-code")).to_contain_text("module stranger, from")
        for scheme in THEMES:
            page.emulate_media(color_scheme=scheme)
            expect(page.locator(".stApp")).to_have_css("color-scheme", scheme)
            assert wrong(page) == []
    finally:
        ask_no_more(workspace)


def test_run_stays_in_reach_and_the_focus_is_seen(shown: tuple[Page, str, Gallery]) -> None:
    """At 1280 x 800, at both ends of the form; by Tab come the fields, as they stand, then Run."""
    page, address, found = shown
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address + found.addresses()["compose-cell"])
    run = page.locator(".st-key-compose-run button:visible")  # Streamlit draws another one for touch
    expect(run).to_be_in_viewport(ratio=1)
    page.locator(".stMain").evaluate("one => one.scrollTo(0, one.scrollHeight)")
    page.wait_for_timeout(200)
    expect(run).to_be_in_viewport(ratio=1)
    page.get_by_role("textbox", name="Name", exact=True).focus()
    reached: list[str] = []
    while "Run" not in reached and len(reached) < 80:
        page.keyboard.press("Tab")
        reached.append(page.evaluate(NAME))
    assert [one for one in reached if one in ORDER] == list(ORDER)
    for scheme in THEMES:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        style = "one => { const s = getComputedStyle(one); return [s.outlineStyle, s.outlineWidth, s.outlineColor]; }"
        kind, width, colour = run.evaluate(style)
        ground = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        assert (kind, width) == ("solid", "2px")
        assert page.evaluate(CONTRAST, [colour, ground]) >= 3
    page.set_viewport_size({"width": 400, "height": 860})
    page.reload()
    expect(run).to_be_in_viewport(ratio=1)


def test_the_field_that_has_the_focus_has_one_ring(shown: tuple[Page, str, Gallery]) -> None:
    """Around all of it: a select's own input ends before its arrow, where a ring of its own would draw a line."""
    page, address, found = shown
    page.goto(address + found.addresses()["compose-cell"])
    settle(page)
    accent = page.locator(".stApp").evaluate("one => getComputedStyle(one).getPropertyValue('--sb-accent')")
    assert accent
    for label in ("Model", "Name"):
        field = page.get_by_label(label, exact=True).and_(page.locator("input"))
        field.focus()
        page.keyboard.press("Shift")  # from now on the keyboard is at work
        assert field.evaluate("one => getComputedStyle(one).outlineStyle") == "none"
        border = "one => getComputedStyle(one).borderRightColor"
        around = field.locator("xpath=..")
        other = page.get_by_label("Data", exact=True).and_(page.locator("input")).locator("xpath=..")
        assert around.evaluate(border) != other.evaluate(border)
        inside, outside = (
            around.bounding_box(),
            page.locator(".stSelectbox, .stTextInput").filter(has=field).bounding_box(),
        )
        assert inside is not None
        assert outside is not None
        assert abs(inside["width"] - outside["width"]) <= 2, "the border is that of the whole field"


def test_help_that_is_opened_by_keys_hides_nothing_that_stands_above_it(shown: tuple[Page, str, Gallery]) -> None:
    """Neither what the field above says is wrong; where there is room, nor the field that it is about."""
    page, address, found = shown
    for width, beside in ((1280, True), (400, False)):
        page.set_viewport_size({"width": width, "height": 860})
        page.goto(address + found.addresses()["compose-cell"])
        settle(page)
        page.get_by_role("textbox", name="Reach", exact=True).focus()
        page.keyboard.press("Shift+Tab")
        sign = page.get_by_role("button", name="Help for Reach")
        expect(sign).to_be_focused()
        help_ = page.get_by_role("tooltip")
        expect(help_).to_be_visible()
        box, at = help_.bounding_box(), sign.bounding_box()
        assert box is not None
        assert at is not None
        assert box["y"] >= at["y"]
        assert (box["x"] >= at["x"] + at["width"]) == beside
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        page.keyboard.press("Escape")
        expect(help_).to_have_count(0)


def boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Of what is seen of it, in pixels."""
    found = page.locator(f"{selector}:visible")
    assert found.count() > 0, selector
    return [dict(box) for one in found.all() if (box := one.bounding_box())]  # type: ignore[arg-type]


def meet(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


def test_why_a_run_failed_is_in_sight_beside_runs_of_other_models(
    shown: tuple[Page, str, Gallery], gallery: tuple[Served, Gallery]
) -> None:
    """At 1280 pixels, among all runs and among those that failed. Where a column is, its help says while the pointer is
    on its head: the table is a picture."""
    page, address, found = shown
    client = open_store(gallery[0].workspace)
    for name in ("failed", "stopped"):
        client.set_tag(found.runs[name], names.TAG_MODEL, f"Model of {name}")
    for asked in ("/runs", "/runs?state=failed"):
        page.goto(address + asked)
        settle(page)
        grid = boxes(page, "[data-testid=stDataFrame]")[0]
        assert grid["x"] + grid["width"] <= 1280
        seen = []
        for x in range(300, int(grid["width"]) - 10, 60):
            page.mouse.move(grid["x"] + x - 3, grid["y"] + 18)
            page.mouse.move(grid["x"] + x, grid["y"] + 18)
            page.wait_for_timeout(900)
            if page.get_by_text("Why the run is waiting, has failed or was pruned").count():
                seen.append(x)
        assert len(seen) >= 4, "240 of its 260 pixels"


@pytest.mark.parametrize(("name", "actions"), [("runs", "table-actions"), ("search-table", "trial-actions")])
def test_a_tables_own_buttons_cover_nothing(shown: tuple[Page, str, Gallery], name: str, actions: str) -> None:
    """They appear above its upper right corner while the pointer is over it; also once a row is ticked."""
    page, address, found = shown
    page.goto(address + found.addresses()[name])
    settle(page)
    table = page.locator("[data-testid=stDataFrame]:visible").last
    table.scroll_into_view_if_needed()
    for ticked in (False, True):
        box = table.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 60, box["y"] + 50)
        page.mouse.move(box["x"] + 18, box["y"] + 52)
        if ticked:
            page.wait_for_timeout(300)
            page.mouse.click(box["x"] + 18, box["y"] + 52)
            settle(page)
        page.wait_for_timeout(500)
        own = boxes(page, "[data-testid=stElementToolbarButton]")
        ours = boxes(page, f".st-key-{actions} :is(button, a, p)")
        assert [(one, other) for one in own for other in ours if meet(one, other)] == []


def test_enter_in_the_title_of_a_new_notebook_makes_it(
    shown: tuple[Page, str, Gallery], gallery: tuple[Served, Gallery]
) -> None:
    """Once; an empty title makes none."""
    page, address, found = shown
    root = gallery[0].workspace.root
    before = set(root.glob("*.md"))
    try:
        page.goto(address + found.addresses()["notebook-empty"])
        page.get_by_role("button", name="New notebook").click()
        dialog = page.get_by_role("dialog")
        box = dialog.get_by_role("textbox")
        box.press("Enter")
        page.wait_for_timeout(1000)
        expect(dialog).to_be_visible()
        assert set(root.glob("*.md")) == before
        box.press_sequentially("By Enter alone")
        box.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page).to_have_title("By Enter alone · Scalebook")
        assert {one.name for one in set(root.glob("*.md")) - before} == {"by-enter-alone.md"}
    finally:
        for one in set(root.glob("*.md")) - before:
            one.unlink()


def test_keys_save_and_close(shown: tuple[Page, str, Gallery]) -> None:
    """Ctrl+S and Ctrl+Enter take along what is half typed; Esc closes an editor that has nothing to lose."""
    page, address, found = shown
    page.goto(address + found.addresses()["notebook-empty"])
    page.get_by_role("button", name="Add a note").click()
    box = page.locator("[class*='st-key-editor-'] textarea")
    box.press("Escape")
    expect(box).to_have_count(0)
    add = page.get_by_role("button", name="Add a note")
    expect(add).to_have_count(1)  # while the page is drawn anew the former one may still be there
    add.click()
    box.fill("Kept")
    box.press("Escape")
    expect(box).to_have_value("Kept")
    box.press("Control+Enter")
    expect(box).to_have_count(0)  # the preview beside it says the same
    kept = page.get_by_text("Kept", exact=True)
    expect(kept).to_have_count(1)  # a busy page has what was drawn before for a moment longer
    expect(kept).to_be_visible()
    edit = page.get_by_role("button", name="Edit")
    page.mouse.move(5, 5)
    for width in (400, 1920, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        expect(edit).to_be_visible()
        assert edit.evaluate(SEEN) == 1
    page.goto(address + found.addresses()["compose-cell"])
    epochs = page.get_by_role("textbox", name="Epochs", exact=True)
    epochs.fill("6")
    epochs.press("Control+s")
    card = page.locator(".st-key-cell-experiment-pixelcnn-async-2")
    expect(card).to_contain_text("6 epochs")
    expect(card).to_be_in_viewport()


def test_one_finds_the_way_back(shown: tuple[Page, str, Gallery]) -> None:
    """From a run to the cell, which is scrolled to; by the menu to the notebook last open, also in a new session."""
    page, address, found = shown
    page.goto(address + found.addresses()["run-live"])
    figures = page.locator(".st-key-live-standing .sb-facts")
    figures.evaluate("one => { one.parentElement.dataset.stale = 'true'; }")  # as between two ticks
    assert figures.evaluate(SEEN) == 1
    page.get_by_role("link", name="Does staleness hurt? › pixelcnn-single").click()
    card = page.locator(".st-key-cell-experiment-pixelcnn-single")
    expect(card).to_be_in_viewport()
    page.wait_for_timeout(3000)  # the charts below and above have been drawn
    top = card.evaluate("one => one.getBoundingClientRect().top")
    assert 50 < top < 200
    page.goto(f"{address}/runs")
    page.get_by_role("link", name="Notebook", exact=True).click()
    expect(page).to_have_title("Does staleness hurt? · Scalebook")


def test_names_are_links(shown: tuple[Page, str, Gallery]) -> None:
    """They open in this tab, and nothing is loaded anew; with Ctrl in another one. Back leads back."""
    page, address, _ = shown
    page.goto(f"{address}/runs?sort=name")
    page.evaluate("window.stays = true")
    grid = page.locator(".stDataFrameGlideDataEditor").first
    expect(grid).to_be_visible()
    settle(page)
    box = grid.bounding_box()
    assert box is not None
    for x in (82, 80):  # in the first row, behind its tick: the grid looks where the mouse is
        page.mouse.move(box["x"] + x, box["y"] + 52)
        page.wait_for_timeout(300)
    with page.context.expect_page() as another:
        page.keyboard.down("Control")
        page.mouse.down()
        page.mouse.up()
        page.keyboard.up("Control")
    expect(another.value).to_have_url(re.compile(r"/runs\?.*run=[0-9a-f]{32}$"))
    another.value.close()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}$"))
    expect(page.get_by_role("heading", level=1)).to_have_text(["pixelcnn-single · seed 2"])
    page.get_by_role("tab", name="Other runs").click()
    page.get_by_role("tabpanel").get_by_role("link", name="seed 1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(["pixelcnn-single · seed 1"])
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(["pixelcnn-single · seed 2"])
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(["Runs"])
    assert page.evaluate("window.stays") is True


COUNTED = """
  window.worked = new Map();
  const kept = new WeakMap();
  Object.defineProperty(HTMLElement.prototype, "calcdata", {
    get() { return kept.get(this); },
    set(data) {
      kept.set(this, data);
      if (data) window.worked.set(this, (window.worked.get(this) ?? 0) + 1);
    },
  });
"""
"""How often Plotly has worked out what it draws, by chart."""


def test_charts_speak_the_pages_language(shown: tuple[Page, str, Gallery]) -> None:
    """Their letters are those of the page; each is drawn once."""
    page, address, found = shown
    page.add_init_script(COUNTED)
    page.goto(address + found.addresses()["run"])
    tick = page.locator(".js-plotly-plot .xtick text").first
    expect(tick).to_be_attached()
    settle(page)  # a chart whose page still grows is drawn into another place, and this tick is nobody's
    family = "one => getComputedStyle(one).fontFamily.replaceAll('\"', '')"
    of_page = page.locator(".stApp").evaluate(family)
    assert tick.evaluate(family) == of_page
    worked = page.evaluate("[...window.worked.values()]")
    assert len(worked) >= 3
    assert set(worked) == {1}


def test_a_click_on_a_mark_opens_its_trial_and_back_leads_to_the_search(shown: tuple[Page, str, Gallery]) -> None:
    page, address, found = shown
    page.goto(f"{address}{found.addresses()['search-pareto']}")
    mark = page.locator(".st-key-search-pareto .scatterlayer .trace .points path").nth(5)
    expect(mark).to_be_attached()
    settle(page)
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x + 1, y)
    page.wait_for_timeout(300)
    page.mouse.move(x, y)
    page.wait_for_timeout(300)
    page.mouse.click(x, y, delay=60)
    page.wait_for_url(re.compile(r"/runs\?run=[0-9a-f]{32}"), timeout=20_000)
    page.go_back()  # to that search and view, by one step
    assert page.url == f"{address}{found.addresses()['search-pareto']}"
    expect(page).to_have_title(f"{PAGES['search-pareto']} · Scalebook")
    expect(page.get_by_role("tab", name="Pareto")).to_have_attribute("aria-selected", "true")
