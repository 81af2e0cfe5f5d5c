"""The settings of the pages stand in code; the file for developers says nothing else."""

import tomllib
from pathlib import Path

from scalebook.app.serving.page_settings import page_settings
from scalebook.app.serving.ports import LOOPBACK

FILE = Path(__file__).parents[3] / ".streamlit" / "config.toml"


def test_the_file_for_developers_agrees_with_the_code() -> None:
    ours = page_settings(LOOPBACK, 8501)
    told = tomllib.loads(FILE.read_text(encoding="utf-8"))
    flat = {f"{section}.{key}": value for section, keys in told.items() for key, value in keys.items()}
    assert {"browser.gatherUsageStats", "server.address"} <= flat.keys()
    assert flat == {key: ours[key] for key in flat}
