"""The browser's process stays light: no page loads torch, whatever it shows."""

import subprocess
import sys
from pathlib import Path

from scalebook.training.base.workspace import Workspace
from tests.app import answered
from tests.app.recorded import record
from tests.shared_files import Prepared

PROGRAM = """
import sys
from streamlit.testing.v1 import AppTest
from scalebook.app.navigation import PLACES
app = AppTest.from_file("app/main.py", default_timeout=60).run()
for place in PLACES:
    app.switch_page(place.script)
    app.query_params["runs"] = app.query_params["run"] = sys.argv[1]
    app.run()
    assert not app.exception, app.exception[0].value
print([name for name in ("torch", "lightning", "jsonargparse") if name in sys.modules])
"""


def test_no_page_loads_torch(tmp_path: Path, prepared: Prepared) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    (tmp_path / "first-steps.md").write_text(answered.written(), encoding="utf-8")
    job = record(workspace)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, job.id],
        env={"PATH": "/usr/bin:/bin", "SCALEBOOK_WORKSPACE": str(tmp_path)},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().splitlines()[-1] == "[]"
