import os
from pathlib import Path

import pytest

from scalebook.training.jobs.devices import Gpu, cpu_quota, machine_words, this_machine, visible

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


@pytest.mark.parametrize(
    ("told", "seen"),
    [(None, [A, B]), ("", []), ("1", [B]), ("1,0", [B, A]), ("GPU-a", [A]), ("0,7,1", [A]), ("-1", [])],
)
def test_gpus_are_those_the_variable_lets_through(told: str | None, seen: list[Gpu]) -> None:
    assert visible([A, B], told) == seen


def test_a_machine_in_words_counts_gpus_of_one_name() -> None:
    assert machine_words(8, [A, B, Gpu("GPU-cccc", "L4", 24000)]) == "8 cores, 2 x H200, 1 x L4"
    assert machine_words(1, []) == "1 core"
