"""What is wrong with a page for whoever cannot see it well or has no mouse: axe-core's rules, run in the page."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SERIOUS = ("serious", "critical")
RUN = """tags => axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']}).then(found =>
  found.violations.flatMap(one => one.nodes.map(node => ({rule: one.id, impact: one.impact, html: node.html,
    target: node.target.flat(2).join(' '), why: [...node.any, ...node.all, ...node.none].map(each => each.message)
  }))))"""


@dataclass(frozen=True)
class Finding:
    """One rule that one element breaks. `target` is its selector, as axe found it."""

    rule: str
    impact: str
    target: str
    html: str
    why: str

    def __str__(self) -> str:
        return f"{self.rule} ({self.impact}) {self.target}: {self.why}\n    {self.html[:300]}"


def findings(page: Page) -> list[Finding]:
    """All that axe-core finds on the page as it stands."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate(RUN, TAGS)
    return [Finding(**(one | {"why": "; ".join(one["why"])})) for one in found]
