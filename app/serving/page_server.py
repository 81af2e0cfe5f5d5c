"""The Streamlit server, with the slow imports done before the first visit.

`python -m scalebook.app.serving.page_server PORT`.
"""

import gc
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from scalebook.app.serving.access import Access, as_server
from scalebook.app.serving.child import LOOPBACK, Child, end_with_owner
from scalebook.app.serving.gateway import Guard
from scalebook.app.serving.shell import Shell
from scalebook.training.base import Workspace, safe_path, trust

_FONT: Final = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
_SETTINGS: Final = {
    "server.headless": True,  # print the address, open no browser window
    "server.fileWatcherType": "none",  # pages change with a release, not while somebody works
    "server.enableStaticServing": False,
    "server.showEmailPrompt": False,
    "browser.gatherUsageStats": False,  # nobody is told of what is done here
    "client.toolbarMode": "minimal",  # no deploy button, no developer menu
    "client.showErrorDetails": "full",
    "client.showErrorLinks": False,
    "client.showSidebarNavigation": False,
    "logger.hideWelcomeMessage": True,  # it would name an address without its token
}
_THEME: Final = {
    "font": _FONT,
    "headingFont": _FONT,
    "codeFont": "'SF Mono', Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace",
    "baseFontSize": 15,
    "codeFontSize": "0.83rem",
    "headingFontSizes": ["1.7rem", "1.3rem", "1.1rem", "1rem", "0.9rem", "0.85rem"],
    "headingFontWeights": [650, 600, 600, 600, 600, 600],  # Streamlit takes steps of 50 only
    "metricValueFontSize": "1.35rem",
    "baseRadius": "0.45rem",
    "buttonRadius": "0.45rem",
    "showWidgetBorder": True,
    "linkUnderline": True,  # in the middle of a text; names in tables and menus are told by their colour
    "light.primaryColor": "#0b6e75",
    "light.backgroundColor": "#fbfbfa",
    "light.secondaryBackgroundColor": "#f0f1ef",
    "light.textColor": "#1c2327",
    "light.linkColor": "#0b6e75",
    "light.borderColor": "#dddfdc",
    "light.codeBackgroundColor": "#f3f4f2",
    "light.dataframeBorderColor": "#e2e4e1",
    "light.dataframeHeaderBackgroundColor": "#f3f4f2",
    "light.greenColor": "#2f855a",
    "light.redColor": "#c0392b",
    "light.orangeColor": "#c05d10",
    "light.blueColor": "#2563a8",
    "light.grayColor": "#75807f",
    "dark.primaryColor": "#137b81",  # 5.0:1 under the white of a button, 3.5:1 on the page
    "dark.backgroundColor": "#14181b",
    "dark.secondaryBackgroundColor": "#1d2327",
    "dark.textColor": "#e4e8e8",
    "dark.linkColor": "#5cc3c6",
    "dark.borderColor": "#323a3f",
    "dark.codeBackgroundColor": "#1a2024",
    "dark.dataframeBorderColor": "#2b3338",
    "dark.dataframeHeaderBackgroundColor": "#1d2327",
    "dark.greenColor": "#5dc08a",
    "dark.redColor": "#f07d70",
    "dark.orangeColor": "#e8a15a",
    "dark.blueColor": "#74abe2",
    "dark.grayColor": "#8c9897",
}


def page_settings(address: str, port: int, hosts: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """All Streamlit settings that matter, for a server on this address.

    They do not depend on a `config.toml`: an installed Scalebook has none, and one elsewhere is not Scalebook's.
    `hosts`: names of proxies in front of the server.
    """
    # the first name is set here too: otherwise Streamlit would ask an external server for our own address
    proxy = {"browser.serverAddress": hosts[0].partition(":")[0]} if hosts else {}
    return {
        **proxy,
        **_SETTINGS,
        **{f"theme.{name}": value for name, value in _THEME.items()},
        "server.address": address,
        "server.port": port,
        "server.corsAllowedOrigins": [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")],
    }


PORT = 8501
PAGES_LOG = "ui.log"
MODULE = "scalebook.app.serving.page_server"
HEALTH = "/_stcore/health"


def page_server(workspace: Workspace, access: Access, port: int = PORT) -> Child:
    """The server, not yet started."""

    def command(port: int) -> Sequence[str]:
        return safe_path.python("-m", MODULE, str(port), *access.arguments())

    return Child(
        name="Scalebook",
        command=command,
        health=HEALTH,
        preferred_port=port,
        log=workspace.hidden / PAGES_LOG,
        env=safe_path.environment(
            SCALEBOOK_WORKSPACE=str(workspace.root), MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR="false"
        ),
        cwd=safe_path.HOME,
    )


def warm_up() -> None:
    """Import what the pages need and open the store once, so that the first visitor does not wait for it (3 s).

    Also freezes the modules' objects: after each run of a page Streamlit collects garbage among all objects, which
    otherwise blocks all pages for 0.15 s.
    """
    with safe_path.importing():
        import plotly.graph_objects  # noqa: F401

        from scalebook.training.tracking import RunReader

    try:
        RunReader(Workspace.find().tracking_uri()).runs(limit=1)
    finally:  # also where the store does not answer
        gc.freeze()


BACKEND: Final = "MPLBACKEND"


@contextmanager
def own_backend() -> Iterator[None]:
    """Undo that the block sets the variable BACKEND, as importing Streamlit does. A job submitted from a page would
    have it, too, and could not be forked from what was imported without it: each run would start 4 s later."""
    before = os.environ.get(BACKEND)
    try:
        yield
    finally:
        os.environ.pop(BACKEND, None)
        if before is not None:
            os.environ[BACKEND] = before


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    end_with_owner()
    workspace, access, port = as_server(MODULE, argv)

    with own_backend(), safe_path.importing():
        from starlette.middleware import Middleware
        from streamlit import App

        from scalebook.app.serving.left_pages import leave_out

    leave_out()
    threading.Thread(target=warm_up, daemon=True, name="warm-up").start()
    script = str(Path(__file__).resolve().parents[1] / "main.py")
    sys.argv = [script]  # Streamlit takes it for what was started
    guard = Middleware(Guard, access=access, port=port, health=HEALTH, reserved=lambda: not trust.trusted(workspace))
    App(script, middleware=[guard, Middleware(Shell)]).run(config=page_settings(LOOPBACK, port, access.hosts))


if __name__ == "__main__":
    main()
