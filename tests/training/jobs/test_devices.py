import os
from pathlib import Path

import pytest

from scalebook.training.jobs.devices import NodeDevices, cpu_quota, machine_words, this_machine
from scalebook.training.jobs.gpus import Gpu

A, B = Gpu("GPU-aaaa", "H200", 141000), Gpu("GPU-bbbb", "H200", 141000)


def test_the_cores_are_those_this_process_may_use() -> None:
    found = this_machine().cores
    assert found
    assert set(found) <= os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("content", "cores"),
    [("max 100000", None), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("", None)],
)
def test_a_containers_quota_counts_in_whole_cores(tmp_path: Path, content: str, cores: int | None) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(content, encoding="ascii")
    assert cpu_quota(path) == cores
    assert cpu_quota(tmp_path / "missing") is None


def test_a_machine_in_words_counts_gpus_of_one_name() -> None:
    assert machine_words(8, [A, B, Gpu("GPU-cccc", "L4", 24000)]) == "8 cores, 2 x H200, 1 x L4"
    assert machine_words(1, []) == "1 core"


def test_one_job_can_have_all_whole_gpus_or_one_instance() -> None:
    cut = [Gpu("MIG-a", "1g", 10000), Gpu("MIG-b", "1g", 10000)]
    assert [NodeDevices([0], gpus).together for gpus in ([], [A, B], cut, [A, *cut])] == [0, 2, 1, 1]
