"""Profilers of a Trainer whose work is done in other processes."""

from pathlib import Path

import pytest
from lightning.pytorch.profilers import PyTorchProfiler, SimpleProfiler

from tests.training.lightning.async_ps.contract.cases import Case, batches, few, fitted
from tests.training.lightning.async_ps.contract.models import Plain


@pytest.mark.thorough
@few
@pytest.mark.filterwarnings("ignore:.*")
def test_the_profiler_that_was_given_has_worker_0s_events_and_the_folder_every_workers_files(
    case: Case, tmp_path: Path
) -> None:
    profiler = PyTorchProfiler(dirpath=tmp_path / "profiles", filename="seen")
    fitted(case, tmp_path, Plain(), train=batches(), max_epochs=1, profiler=profiler)
    assert profiler.profiler is None  # none begins here
    assert profiler.function_events is not None
    assert any(event.name.startswith("aten::") for event in profiler.function_events)
    files = [path.name for path in (tmp_path / "profiles").iterdir()]
    for worker in range(2):
        assert f"fit-seen-{worker}.txt" in files
        assert any(name.startswith(f"fit-seen-{worker}-") and name.endswith(".json") for name in files)


@pytest.mark.thorough
@few
def test_durations_come_back_too(case: Case, tmp_path: Path) -> None:
    profiler = SimpleProfiler()
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=1, profiler=profiler)
    assert len(profiler.recorded_durations["run_training_batch"]) == len(seen[0]["train"]) // 8
