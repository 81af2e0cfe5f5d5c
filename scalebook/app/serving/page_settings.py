"""The look and the manners of the pages: every setting of Streamlit's that matters to us, told by us.

Nothing is left to a `config.toml`: an installed Scalebook has none beside it, and one elsewhere is not ours.
"""

from collections.abc import Mapping
from typing import Any, Final

_FONT: Final = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
_MANNERS: Final = {
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
    """Streamlit's options for a server on this address. `hosts`: names of proxies that it is reached through."""
    # the first name is told twice: Streamlit looks there before it would ask a server elsewhere for our own address
    proxy = {"browser.serverAddress": hosts[0].partition(":")[0]} if hosts else {}
    return {
        **proxy,
        **_MANNERS,
        **{f"theme.{name}": value for name, value in _THEME.items()},
        "server.address": address,
        "server.port": port,
        "server.corsAllowedOrigins": [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")],
    }
