import json
import subprocess
import sys
from dataclasses import asdict

from scalebook.training.jobs import owners
from scalebook.training.jobs.process import ProcessId
from tests.training.benches import Bench


def test_an_owner_is_present_while_it_holds(bench: Bench) -> None:
    assert not owners.present(bench.workspace)
    with owners.hold(bench.workspace):
        assert owners.present(bench.workspace)
    assert not owners.present(bench.workspace)


def test_a_killed_owner_is_forgotten(bench: Bench) -> None:
    with owners.hold(bench.workspace):
        pass
    process = subprocess.Popen([sys.executable, "-c", ""])
    dead = ProcessId.of(process.pid)
    process.wait()
    path = owners.folder(bench.workspace) / f"{dead.pid}.json"
    path.write_text(json.dumps(asdict(dead)), encoding="utf-8")
    assert not owners.present(bench.workspace)
    assert not path.exists()
