import subprocess
import sys
from pathlib import Path

from scalebook.app.serving.addresses import Addresses, only_one
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace

HOLD = """
import sys, pathlib
from scalebook.app.serving.addresses import only_one
from scalebook.training.base.workspace import Workspace
with only_one(Workspace(pathlib.Path(sys.argv[1]))) as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


def test_addresses_come_back_and_are_forgotten(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    assert Addresses.read(workspace) is None
    written = Addresses("http://127.0.0.1:8501", None, [ProcessId.of()])
    written.write(workspace)
    assert Addresses.read(workspace) == written
    Addresses.forget(workspace)
    Addresses.forget(workspace)
    assert Addresses.read(workspace) is None


def test_a_second_server_is_refused_until_the_first_is_gone_even_killed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with only_one(workspace) as mine:
            assert not mine
        other.kill()
        other.wait(10)
    with only_one(workspace) as mine:
        assert mine
