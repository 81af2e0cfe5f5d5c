import gc
import os
import sys
import tomllib
from pathlib import Path

import pytest

from scalebook.app.serving.child import LOOPBACK
from scalebook.app.serving.page_server import own_backend, page_settings, warm_up
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.job_environment import read_too_early, submitted
from scalebook.training.tracking.run_reader import RunReader
from tests.shared_files import Prepared

FILE = Path(__file__).parents[3] / ".streamlit" / "config.toml"


def test_the_file_for_developers_agrees_with_the_code() -> None:
    ours = page_settings(LOOPBACK, 8501)
    told = tomllib.loads(FILE.read_text(encoding="utf-8"))
    flat = {f"{section}.{key}": value for section, keys in told.items() for key, value in keys.items()}
    assert {"browser.gatherUsageStats", "server.address"} <= flat.keys()
    assert flat == {key: ours[key] for key in flat}


@pytest.mark.parametrize("own", ["", "pdf"])
def test_jobs_submitted_from_a_page_have_the_users_matplotlib(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit sets it, and a job with another one than the fork server cannot be forked."""
    monkeypatch.delenv("MPLBACKEND", raising=False)
    if own:
        monkeypatch.setenv("MPLBACKEND", own)
    before = submitted()
    with own_backend():
        os.environ["MPLBACKEND"] = "Agg"  # as Streamlit does
        assert read_too_early(submitted(), before, before) == ["MPLBACKEND"]
    assert submitted() == before
    assert read_too_early(submitted(), before, before) == []


def test_no_garbage_is_looked_for_among_what_was_imported(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.into(Workspace(tmp_path))
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    known: list[set[str]] = []
    monkeypatch.setattr(gc, "freeze", lambda: known.append(set(sys.modules)))
    warm_up()
    assert {"plotly.graph_objects", "mlflow.store.tracking.sqlalchemy_store"} - known[-1] == set()
    assert known[-1] == set(sys.modules)  # when all of it was there


def test_nor_where_the_store_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_reader: RunReader, **_asked: object) -> None:
        raise ConnectionError("refused")

    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.setattr(RunReader, "runs", refuse)
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    with pytest.raises(ConnectionError):
        warm_up()
    assert frozen[-1:] == [True]
