"""What becomes of buffers that training changes, of workers that are played here one after another."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scalebook.training.engine.memory.shared_memory import SharedRows
from scalebook.training.lightning.buffers import BufferPolicy, Buffers

WORKERS = 3


class Codes(nn.Module):
    """A codebook; a queue with its pointer in a module of its own; a constant; running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: Tensor
        self.register_buffer("codes", torch.zeros(2, 3))
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("cache", torch.ones(1), persistent=False)
        self.memory = nn.Module()
        self.memory.register_buffer("queue", torch.zeros(4, dtype=torch.bfloat16))
        self.memory.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self.norm = nn.BatchNorm1d(2)


class Alone(SimpleNamespace):
    """`MessageExchange` to which nobody else comes."""

    @staticmethod
    def gather_before_training(message: bytes, what: str) -> dict[int, bytes]:
        return {1: message}


class Workers:
    """Several workers' buffers over the same memory."""

    def __init__(self, rows: SharedRows, policy: BufferPolicy | None, synchronous: bool) -> None:
        self.models = [Codes() for _ in range(WORKERS)]
        self.buffers = [Buffers(m, policy, synchronous, w, WORKERS, rows) for w, m in enumerate(self.models)]
        self.buffers[0].allocate()
        for buffers in self.buffers:
            buffers.share(None)
            buffers.begin_watching()
        self.version = 0

    def step(self, worker: int, change: float) -> None:
        """Its forward pass adds to the codes; then it pushes, and is alone in the update."""
        self.compute(worker, change)
        self.version += 1
        self.buffers[worker].apply_policy(worker, self.version)

    def compute(self, worker: int, change: float) -> None:
        self.models[worker].codes += change
        self.buffers[worker].publish(worker, self.version)

    def codes(self) -> list[float]:
        return [float(model.codes.mean()) for model in self.models]


@pytest.fixture
def memory() -> Iterator[SharedRows]:
    with closing(SharedRows(WORKERS)) as rows:
        yield rows


def test_a_worker_goes_on_from_the_mean_of_what_is_new(memory: SharedRows) -> None:
    workers = Workers(memory, None, synchronous=False)
    workers.step(0, 6.0)
    assert workers.codes() == [6.0, 0.0, 0.0], "nobody has shown anything yet"
    workers.step(1, 1.0)
    assert workers.codes() == [6.0, 6.0, 0.0], "a worker begins with what is there"
    workers.step(1, 3.0)
    assert workers.codes() == [6.0, 9.0, 0.0], "nothing is new"
    workers.step(0, -1.0)
    assert workers.codes() == [7.0, 9.0, 0.0], "the mean of 5 and 9"
    workers.step(0, 2.0)
    assert workers.codes() == [9.0, 9.0, 0.0], "who has ended holds nobody back"
    workers.step(2, 5.0)
    assert workers.codes() == [9.0, 9.0, 9.0]


def test_those_of_worker_0_replace_what_others_have(memory: SharedRows) -> None:
    workers = Workers(memory, "of_worker_0", synchronous=False)
    workers.step(0, 6.0)
    workers.step(1, 1.0)
    workers.step(0, 1.0)
    workers.step(2, 1.0)
    assert workers.codes() == [7.0, 6.0, 7.0]


def test_each_may_keep_its_own_and_how_far_they_are_apart_is_known(memory: SharedRows) -> None:
    workers = Workers(memory, "per_worker", synchronous=False)
    assert workers.buffers[0].apart([0, 1, 2]) is None
    for worker, change in enumerate((1.0, 2.0, 6.0)):
        workers.step(worker, change)
    assert workers.codes() == [1.0, 2.0, 6.0]
    assert workers.buffers[0].apart([0, 1, 2]) == pytest.approx(1.0)
    assert workers.buffers[0].apart([0, 1]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("policy", "after"), [(None, [5.0] * 3), ("averaged", [3.0] * 3)])
def test_under_a_synchronous_rule_all_have_those_of_the_same_update(
    memory: SharedRows, policy: BufferPolicy | None, after: list[float]
) -> None:
    """Worker 0 may have shown what is of the next update by the time that another looks."""
    workers = Workers(memory, policy, synchronous=True)
    for worker in range(WORKERS):
        workers.compute(worker, 4.0 - worker)
    workers.version += 1
    for worker in range(WORKERS):
        workers.buffers[worker].apply_policy(worker, workers.version)
    assert workers.codes() == [4.0] * 3, "they begin with worker 0's"
    for worker in (2, 1, 0):
        workers.compute(worker, 1.0 - 2 * worker)
    workers.version += 1
    workers.buffers[0].apply_policy(0, workers.version)
    workers.compute(0, 100.0)
    for worker in (1, 2):
        workers.buffers[worker].apply_policy(worker, workers.version)
    assert workers.codes() == [after[0] + 100.0, *after[1:]]


def test_integers_and_what_is_beside_them_are_worker_0s(memory: SharedRows) -> None:
    workers = Workers(memory, "averaged", synchronous=False)

    def enqueue(worker: int) -> None:
        inner: Any = workers.models[worker].memory
        inner.queue[int(inner.pointer)] = worker + 1
        inner.pointer += 1
        workers.step(worker, 1.0)

    for worker in (0, 1, 0, 1):
        enqueue(worker)
    for model, filled in zip(workers.models[:2], (2, 2), strict=True):
        inner: Any = model.memory
        assert inner.pointer == filled
        assert inner.queue.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_running_statistics_stay_each_ones_own_until_they_are_validated(memory: SharedRows) -> None:
    workers = Workers(memory, None, synchronous=False)
    for worker, model in enumerate(workers.models):
        assert model.norm.running_mean is not None
        model.norm.running_mean += worker
        workers.buffers[worker].publish(worker, worker)
        workers.buffers[worker].apply_policy(worker, worker + 1)
    mine = workers.models[0].norm.running_mean
    assert mine is not None
    assert mine.tolist() == [0.0] * 2
    workers.buffers[0].show_mean([0, 1])
    assert mine.tolist() == [0.5] * 2
    workers.buffers[0].show_own()
    assert mine.tolist() == [0.0] * 2
    assert workers.buffers[0].apart([0, 1, 2]) is None, "they are no news"


def test_who_is_started_again_goes_on_with_what_it_has_shown(memory: SharedRows) -> None:
    workers = Workers(memory, "averaged", synchronous=False)
    for worker, change in ((0, 4.0), (1, 0.0), (1, 2.0)):
        workers.step(worker, change)
    again = Codes()
    buffers = Buffers(again, "averaged", False, 1, WORKERS, memory)
    meetings: Any = Alone()
    buffers.share(meetings)
    assert float(again.codes.mean()) == 6.0


def test_a_buffer_of_another_shape_is_an_error_and_a_cache_is_not(memory: SharedRows) -> None:
    workers = Workers(memory, None, synchronous=False)
    workers.models[0].cache = torch.ones(7)
    workers.step(0, 1.0)
    workers.models[0].codes = torch.zeros(3, 3)
    with pytest.raises(
        ValueError, match=r"model: buffer codes was float32 \[2, 3\] and is float32 \[3, 3\] now.*buffers to per_worker"
    ):
        workers.step(0, 1.0)


def test_shapes_may_change_where_each_keeps_its_own(memory: SharedRows) -> None:
    workers = Workers(memory, "per_worker", synchronous=False)
    workers.models[0].codes = torch.zeros(3, 3)
    workers.step(0, 1.0)
    assert workers.codes()[0] == 1.0
