"""The pages: their files, paths and titles. A path with its parameters is the address of a view."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

PAGES = Path(__file__).resolve().parents[1] / "pages"


@dataclass(frozen=True)
class PageEntry:
    """One page. `path` is "" for the first page; buttons lead to a hidden page, the menu does not."""

    file: str
    path: str
    title: str
    icon: str
    hidden: bool = False

    @property
    def script(self) -> str:
        return str(PAGES / self.file)

    def url(self, **parameters: str) -> str:
        """The address within the app, with parameters (`/runs?run=ID`)."""
        return f"/{self.path}" + (f"?{urlencode(parameters, safe=',')}" if parameters else "")

    @staticmethod
    def cell(notebook: str, cell: str = "") -> dict[str, str]:
        """The query parameters of a cell of a notebook, or of its top."""
        return {"notebook": notebook, "cell": cell} if cell else {"notebook": notebook}


NOTEBOOK = PageEntry("notebook.py", "", "Notebook", ":material/menu_book:")
COMPOSE = PageEntry("compose.py", "compose", "Compose", ":material/edit_note:", hidden=True)
RUNS = PageEntry("runs.py", "runs", "Runs", ":material/view_list:")
SEARCH = PageEntry("search.py", "search", "Search", ":material/travel_explore:")
COMPARE = PageEntry("compare.py", "compare", "Compare", ":material/stacked_line_chart:")
PLAN = PageEntry("plan.py", "plan", "Plan", ":material/timeline:")
HELP = PageEntry("help.py", "help", "Help", ":material/help:")
PLACES = (NOTEBOOK, COMPOSE, RUNS, SEARCH, COMPARE, PLAN, HELP)
