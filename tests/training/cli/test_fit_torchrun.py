"""`scalebook fit` under torchrun itself, two of which are two machines."""

import subprocess
import sys
from pathlib import Path

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from scalebook.training.tracking import names
from tests.shared_files import Prepared
from tests.training.lightning.async_ps.machines import free_port
from tests.training.runs import config, reader

pytestmark = [pytest.mark.long, pytest.mark.thorough, pytest.mark.timeout(600)]
WAIT_S = 300.0
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1")


def test_two_of_them_make_one_run(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    workspaces = [prepared.into(Workspace(tmp_path / f"workspace-{node}")) for node in range(2)]
    path, address = tmp_path / "x.yaml", ("--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    path.write_text(yaml.dump(config("ddp", num_nodes=2, devices=1)), encoding="utf-8")
    started = []
    try:
        for node, workspace in enumerate(workspaces):
            monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(workspace.root))
            what = (*TORCHRUN, "--node-rank", str(node), *address, "-m", "scalebook", "fit", "-c", str(path))
            started.append(subprocess.Popen(what))
        assert [process.wait(WAIT_S) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    (record,) = reader(workspaces[0]).runs()
    assert (record.status, record.metrics[names.UPDATES]) == ("FINISHED", 8)
    assert reader(workspaces[1]).runs() == []

    path.write_text(yaml.dump(config("ddp", devices=2)), encoding="utf-8")
    assert main(["fit", "-c", str(path)]) == 0
    (alone,) = reader(workspaces[1]).runs()
    loss = names.final(names.VAL_LOSS)
    assert record.metrics[loss] == alone.metrics[loss]
