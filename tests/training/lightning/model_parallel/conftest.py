from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from scalebook.training.lightning.model_parallel.splitting import DATA, TENSOR, split
from scalebook.training.lightning.processes.cuda_fork import prepare_for_forks
from tests.training.lightning.async_ps.small import data
from tests.training.lightning.model_parallel.split_model import pair

ROWS, COLUMNS = 3, 2
"""Of a mesh that no test has: what DTensor keeps of a mesh is kept with its process groups, and these are gone then."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What torch finds out about each operation of a DTensor and its shapes, once instead of in each worker: a fifth of
    a short fit. The processes of this mesh do not exist, and its collectives do nothing."""
    if not any(Path(__file__).parent in item.path.parents for item in session.items):
        return
    prepare_for_forks()  # DTensor uses FakeTensorMode
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ROWS * COLUMNS)
    model = pair()
    split(model, init_device_mesh("cpu", (ROWS, COLUMNS), mesh_dim_names=(DATA, TENSOR)))
    optimizer = model.configure_optimizers()
    samples = data()
    batch = [torch.stack(column) for column in zip(*(samples[number] for number in range(8)), strict=True)]
    for _ in range(2):
        optimizer.zero_grad()
        model.loss(batch).backward()  # type: ignore[no-untyped-call]  # torch's
        optimizer.step()
    dist.destroy_process_group()
    torch.set_num_threads(threads)
