import math
import pickle

import pytest
import torch

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import (
    ADVICE,
    BY_NAME,
    FEWER_WORKERS,
    Diverged,
    FailureClass,
    ServerLost,
    TimedOut,
    WorkerLost,
    classify,
)
from tests.training.gpu_words import NO_MEMORY, OTHER_ERRORS


def chained(outer: BaseException, inner: BaseException) -> BaseException:
    try:
        raise outer from inner
    except BaseException as error:  # noqa: BLE001 - made just above
        return error


@pytest.mark.parametrize(
    ("error", "failure_class", "cause"),
    [
        (Diverged("train/loss", float("nan"), 7), "diverged", "train/loss became NaN after 7 updates"),
        (WorkerLost(1, "killed by SIGKILL"), "worker lost", "worker 1 died: killed by SIGKILL"),
        (ServerLost(2, "killed by SIGKILL"), "server lost", "server 2 died: killed by SIGKILL"),
        (MemoryError(), "out of memory", "MemoryError: no message"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried"),
            "out of memory",
            "OutOfMemoryError: CUDA out of memory. Tried",
        ),
        (
            RuntimeError("[enforce fail] can't allocate memory: 1"),
            "out of memory",
            "RuntimeError: [enforce fail] can't allocate memory: 1",
        ),
        (RuntimeError("std::bad_alloc"), "out of memory", "RuntimeError: std::bad_alloc"),
        (
            RuntimeError("could not create a primitive"),
            "out of memory",
            "RuntimeError: could not create a primitive",
        ),
        (
            RuntimeError("could not create a primitive descriptor for a convolution"),
            "unknown",
            "RuntimeError: could not create a primitive descriptor for a convolution",
        ),
        (
            OSError(12, "Cannot allocate memory"),
            "out of memory",
            "OSError: [Errno 12] Cannot allocate memory",
        ),
        (TimedOut("x waited"), "timed out", "x waited"),
        (ConfigError("k", "is wrong", "Mend it."), "configuration", "k: is wrong. Mend it."),
        (
            ValueError(" `val_check_interval` (9) must be less than or equal to the number"),
            "configuration",
            "ValueError: `val_check_interval` (9) must be less than or equal to the number",
        ),
        (RuntimeError("a\nb"), "unknown", "RuntimeError: a"),
        (
            chained(RuntimeError("step failed"), Diverged("l", float("inf"), 1)),
            "diverged",
            "l became infinite after 1 update",
        ),
    ],
)
def test_each_failure_has_its_class_cause_and_advice(error: BaseException, failure_class: str, cause: str) -> None:
    found = classify(error)
    assert (found.failure_class, found.cause) == (failure_class, cause)
    assert found.advice == ADVICE[FailureClass(failure_class)]
    assert found.worker == (1 if isinstance(error, WorkerLost) else None)


@pytest.mark.parametrize(
    "error",
    [Diverged("l", 1.0, 2), WorkerLost(3, "gone"), ServerLost(0, "gone"), ConfigError("k", "m", "r"), TimedOut("t")],
)
def test_they_travel_between_processes(error: BaseException) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (type(again), str(again), classify(again)) == (type(error), str(error), classify(error))


@pytest.mark.parametrize(
    ("text", "failure_class"),
    [*((text, "out of memory") for text in NO_MEMORY), *((text, "unknown") for text in OTHER_ERRORS)],
)
def test_a_gpu_without_memory_is_known_whoever_says_it(text: str, failure_class: str) -> None:
    assert classify(RuntimeError(text)).failure_class == failure_class


def test_fewer_asynchronous_workers_are_advice_for_stale_gradients_alone() -> None:
    assert Diverged("train/loss", math.inf, 1).words(3) == "train/loss became infinite after 1 of 3 updates"
    assert Diverged("train/loss", math.inf, 3).words(3) == "train/loss became infinite after 3 updates"
    alone, stale = classify(Diverged("train/loss", 1.0, 3)), classify(Diverged("train/loss", 1.0, 3, stale=True))
    assert "asynchronous" not in alone.advice
    assert stale.advice == f"{alone.advice} {FEWER_WORKERS}"


def test_bytes_are_told_in_units() -> None:
    failure = classify(
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4398046511104 bytes.")
    )
    assert failure.failure_class is FailureClass.OUT_OF_MEMORY
    assert failure.cause.endswith("you tried to allocate 4,400 GB.")


def test_a_dataloader_that_lightning_cannot_copy_gets_advice() -> None:
    """`DataLoader(dataset, batch_size, shuffle)`, by position, under DDP."""
    from lightning.fabric.utilities.data import _reinstantiate_wrapped_cls
    from torch.utils.data import DataLoader

    with pytest.raises(Exception, match="shuffle") as raised:
        _reinstantiate_wrapped_cls(DataLoader([1, 2]), [1, 2], 1, True, shuffle=False)  # type: ignore[arg-type]
    assert (found := classify(raised.value)).advice == BY_NAME
    assert found.failure_class == "configuration"
