import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalebook.training.jobs import usage
from scalebook.training.jobs.executors.local.executor import LocalHandle
from scalebook.training.jobs.folder import JobFolder, Started
from scalebook.training.jobs.gpus import GpuReading
from scalebook.training.jobs.leaving import leave
from scalebook.training.jobs.usage import ALL, SystemMetrics, Usage
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
    told = left(tmp_path, [Usage(2.0 * i, 1.0, 300.0) for i in range(8 * ALL)], cores=[0])[1:]
    points = [point for line in told for point in line[2]]
    assert len(points) / 2 == ALL + 3 * ALL / 2, "as many more, each time that it goes on as long again"
    steps = [point[3] for point in points[::2]]
    assert steps[: ALL + 2] == [*range(ALL), ALL, ALL + 2]
    assert steps[-2:] == [8 * ALL - 16, 8 * ALL - 8]


def test_what_was_told_while_it_ran_is_what_is_told_at_its_end(tmp_path: Path) -> None:
    """With the same step and time, so that MLflow keeps one point of both."""
    samples = [Usage(2.0 * i, 1.0, 300.0, [GpuReading(f"GPU-{i % 2}", 0.5, 900.0, 60.0)]) for i in range(2 * ALL)]
    job = JobFolder(tmp_path / "job")
    job.path.mkdir()
    system = SystemMetrics(job)
    assert list(system.news()) == []
    job.write(Started(LocalHandle.own(), 1000.0, [0]))
    lines = [json.dumps(asdict(sample)) + "\n" for sample in samples]
    found: list[Any] = []
    with usage.file_of(job).open("a") as file:
        for line in lines:
            file.write(line[:20])
            file.flush()
            found += system.news()
            file.write(line[20:])
            file.flush()
            found += system.news()
    assert found == list(SystemMetrics(job).news())
    assert [step for _, step, _ in found] == [*range(ALL), *range(ALL, 2 * ALL, 2)]
