import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalebook.training.jobs import usage
from scalebook.training.jobs.executors.local.executor import LocalHandle
from scalebook.training.jobs.folder import JobFolder, Started
from scalebook.training.jobs.gpus import GpuReading
from scalebook.training.jobs.leaving import MOST_SAMPLES, leave
from scalebook.training.jobs.usage import Usage
from scalebook.training.tracking.spool import LINES, Spool


def left(folder: Path, samples: list[Usage], cores: list[int]) -> list[list[Any]]:
    """What a job that took so much tells MLflow, line by line."""
    job = JobFolder(folder / "job")
    job.path.mkdir()
    job.write(Started(LocalHandle.own(), 1000.0, cores))
    usage.file_of(job).write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
    job.log.write_text("done\n")
    leave(Spool(folder / "spool"), job)
    return [json.loads(line) for line in (folder / "spool" / LINES).read_text().splitlines()]


def test_the_use_of_the_machine_has_the_names_of_mlflows_own(tmp_path: Path) -> None:
    gpus = [GpuReading("GPU-a", 0.5, 900.0, 60.0), GpuReading("GPU-b", None, 800.0, None)]
    log, points = left(tmp_path, [Usage(2.0, 1.0, 300.0, gpus), Usage(4.0, 1.5, 350.0)], cores=[0, 3])
    assert log[1:] == ["artifact", [log[2][0], None]]
    assert log[2][0].endswith("/log.txt")
    assert points[1:] == ["points", [
        ["system/cpu_utilization_percentage", 50.0, 1002000, 0],
        ["system/system_memory_usage_megabytes", 300.0, 1002000, 0],
        ["system/gpu_0_utilization_percentage", 50.0, 1002000, 0],
        ["system/gpu_0_memory_usage_megabytes", 900.0, 1002000, 0],
        ["system/gpu_1_memory_usage_megabytes", 800.0, 1002000, 0],
        ["system/cpu_utilization_percentage", 75.0, 1004000, 1],
        ["system/system_memory_usage_megabytes", 350.0, 1004000, 1],
    ]]  # fmt: skip


def test_of_a_long_run_a_part_of_the_samples_is_told(tmp_path: Path) -> None:
    told = left(tmp_path, [Usage(2.0 * i, 1.0, 300.0) for i in range(3 * MOST_SAMPLES + 1)], cores=[0])[1:]
    points = [point for line in told for point in line[2]]
    assert MOST_SAMPLES / 2 < len(points) / 2 <= MOST_SAMPLES
    assert points[-1][2] > 1000 * (1000 + 5.9 * MOST_SAMPLES), "until the end"
