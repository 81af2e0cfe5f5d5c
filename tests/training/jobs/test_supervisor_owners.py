import json
import subprocess
import sys
from dataclasses import asdict

from scalebook.training.base.processes import ProcessId
from scalebook.training.jobs import supervisor_handle
from tests.training.benches import Bench


def test_an_owner_is_present_while_it_holds(bench: Bench) -> None:
    assert not supervisor_handle.present(bench.workspace)
    with supervisor_handle.hold_supervisor(bench.workspace):
        assert supervisor_handle.present(bench.workspace)
    assert not supervisor_handle.present(bench.workspace)


def test_a_killed_owner_is_forgotten(bench: Bench) -> None:
    with supervisor_handle.hold_supervisor(bench.workspace):
        pass
    process = subprocess.Popen([sys.executable, "-c", ""])
    dead = ProcessId.of(process.pid)
    process.wait()
    path = supervisor_handle.folder(bench.workspace) / f"{dead.pid}.json"
    path.write_text(json.dumps(asdict(dead)), encoding="utf-8")
    assert not supervisor_handle.present(bench.workspace)
    assert not path.exists()
