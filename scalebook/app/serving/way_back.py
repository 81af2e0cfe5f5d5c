"""The way from MLflow's pages to ours: links in its descriptions stay on its server, and are sent on from here.

So they hold whatever address and port the pages have since the last start (`training/tracking/notes.py` writes them).
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, unquote

from scalebook.app.navigation import NOTEBOOK, RUNS, SEARCH
from scalebook.app.serving.addresses import Addresses, by_same_name
from scalebook.training.tracking import names, notes
from scalebook.training.tracking.reading import RunReader, RunRecord
from scalebook.training.workspace import Workspace

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ASSISTANT: Final = "/ajax-api/3.0/mlflow/assistant"
"""MLflow's: it runs programs on this machine and shows runs to a language model. Its panel still opens once in each
browser, and can be closed there."""
NO_ASSISTANT: Final = "Scalebook: MLflow's assistant is off here.\n"
GONE: Final = "Scalebook: nothing lies at this address, or it has been deleted.\n"
NOT_SERVED: Final = "Scalebook: its pages are not served now. Start `scalebook ui` with the notebook's folder.\n"


class WayBack:
    """`app`, which is MLflow's, with our paths before its own and without its assistant.

    Stands behind the guard, which has asked for the token."""

    def __init__(self, app: "ASGIApp", workspace: Workspace) -> None:
        self._app, self._workspace = app, workspace
        self._reader = RunReader(workspace.tracking_uri())

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse, RedirectResponse

        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(ASSISTANT):
            await PlainTextResponse(NO_ASSISTANT, 404)(scope, receive, send)
            return
        if scope["type"] != "http" or not path.startswith(f"{notes.PREFIX}/"):
            await self._app(scope, receive, send)
            return

        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        page = await run_in_threadpool(self._page, raw.decode("latin-1"), scope["query_string"].decode("latin-1"))
        addresses = Addresses.read(self._workspace)
        if page is None:
            await PlainTextResponse(GONE, 404)(scope, receive, send)
        elif addresses is None:
            await PlainTextResponse(NOT_SERVED, 503)(scope, receive, send)
        else:
            app = by_same_name(addresses.app, f"//{host}")
            await RedirectResponse(f"{app}{page}", 303)(scope, receive, send)

    def _page(self, path: str, query: str) -> str | None:
        """The path and the parameters of our page; None where there is none."""
        parts = [unquote(part) for part in path.removeprefix(f"{notes.PREFIX}/").split("/")]
        if len(parts) == 2 and parts[0] == "notebook":
            return NOTEBOOK.url(**NOTEBOOK.cell(parts[1], parse_qs(query).get("cell", [""])[0]))
        if parts[0] != "run" or len(parts) not in (2, 3) or parts[2:] not in ([], ["notebook"]):
            return None
        try:
            record = self._reader.run(parts[1])
        except KeyError:
            return None
        return _notebook(record) if parts[2:] else _run(record)


def _run(record: RunRecord) -> str:
    is_search = names.TAG_SEARCH in record.tags
    return SEARCH.url(search=record.id) if is_search else RUNS.url(run=record.id)


def _notebook(record: RunRecord) -> str | None:
    if record.notebook is None:
        return None
    return NOTEBOOK.url(**NOTEBOOK.cell(record.notebook.removesuffix(".md"), record.cell or ""))
