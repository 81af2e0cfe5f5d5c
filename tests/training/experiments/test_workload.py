from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment


def config(strategy: Any, devices: int = 1, **trainer: Any) -> dict[str, Any]:
    data = {"class_path": "Digits", "init_args": {"batch_size": 16}}
    return {"model": "PixelCNN", "data": data, "trainer": {"strategy": strategy, "devices": devices, **trainer}}


def coded(codec: Any, path: str = "scalebook.training.lightning.DDP") -> dict[str, Any]:
    return {"class_path": path, "init_args": {"codec": codec}}


def split(**degrees: Any) -> dict[str, Any]:
    return {"class_path": "ModelParallel", "init_args": degrees}


ASYNC = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"rule": "async", "workers": 3}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (config("auto"), ("single", None, 1, 16, 16, 16)),
        (config("auto", 2), ("ddp", None, 2, 16, 32, 32)),
        (config("ddp", 4, accumulate_grad_batches=2), ("ddp", None, 4, 16, 64, 128)),
        (config(coded("topk"), 2), ("ddp", "gradients topk 0.01", 2, 16, 32, 32)),
        (config(coded("fp32"), 2), ("ddp", None, 2, 16, 32, 32)),
        (config(ASYNC), ("AsyncPS", "async", 3, 16, 48, 16)),
        (config("AsyncPS", 2, accumulate_grad_batches=2), ("AsyncPS", "async", 2, 16, 32, 32)),
        (config("model_parallel", 2), ("ModelParallel", "tensor 1, shard 2", 2, 16, 32, 32)),
        (config(split(tensor=2), 4), ("ModelParallel", "tensor 2, shard 2", 4, 16, 32, 32)),
        (config(split(stages=2), 4), ("ModelParallel", "stages 2, 1f1b", 4, 16, 32, 32)),
        (config("async_ps", 2), ("AsyncPS", "async", 2, 16, 32, 16)),
    ],
)
def test_strategy_workers_and_the_three_batches(
    given: Any, expected: tuple[Any, ...], description: Description
) -> None:
    found = Experiment.read(given, description)
    batches = (found.batch.per_worker, found.batch.together, found.batch.effective)
    assert (found.strategy.name, found.strategy.words, found.strategy.workers, *batches) == expected


def test_learning_rate_threads_and_accelerator(description: Description) -> None:
    given = {
        **config("auto", accelerator="cpu"),
        "threads": 2,
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.5}},
    }
    found = Experiment.read(given, description)
    assert (found.rate.requested, found.threads, found.accelerator) == (0.5, 2, "cpu")
    assert Experiment.read(config("auto"), description).rate.requested == 0.002


@pytest.mark.parametrize("given", [{}, {"model": None, "trainer": {"devices": "x"}}, {"data": 3, "optimizer": 4}])
def test_a_form_may_ask_while_somebody_types(given: dict[str, Any], description: Description) -> None:
    assert Experiment.read(given, description).strategy.workers == 1


def test_the_parameters_of_a_rule_of_virtual_workers_and_of_a_scaled_rate(description: Description) -> None:
    """As MLflow filters by them: the rate is the one that is applied."""
    strategy = {
        "class_path": "AsyncPS",
        "init_args": {"rule": "async", "workers": 4, "host": "virtual", "clock": {"gradient_s": 0.1}},
    }
    given = {
        **config(strategy),
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.5}},
        "lr_scaling": {"rule": "linear", "per": 64},
    }
    found = Experiment.read(given, description)
    assert (found.rate.requested, found.rate.scaled) == (0.5, 0.125)
    assert found.params() == {
        "strategy": "AsyncPS", "rule": "async", "workers": 4, "batch_per_worker": 16, "batch_global": 64,
        "lr": 0.125, "clock": "virtual",
    }  # fmt: skip
    assert Experiment.read(config("auto"), description).params() == {
        "strategy": "single", "rule": "none", "workers": 1, "batch_per_worker": 16, "batch_global": 16, "lr": 0.002,
        "clock": "real",
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"model": "PixelCNN", "trainer": {"devices": 2}},
        {"model": "PixelCNN", "data": "Digits"},
        {"model": "no.such.Model", "data": "no.such.Data", "trainer": {"strategy": "fsdp", "devices": 2}},
        {**config(coded("topk"), 2), "data": {"class_path": "a.Data", "init_args": {"width": 3}}},
        {**config(ASYNC), "data": "a.Data", "optimizer": {"class_path": "SGD", "init_args": {"lr": None}}},
        config({"class_path": "AsyncPS", "init_args": {"workers": 4, "host": "virtual", "clock": {"gradient_s": 1}}}),
        config({"class_path": "AsyncPS", "init_args": {"workers": 2}}, num_nodes=2),
    ],
)
def test_every_kind_of_config_has_all_flat_parameters(given: dict[str, Any], description: Description) -> None:
    """So that MLflow's charts, grouping and filters find each run: what a config does not say is `unknown`."""
    load = Experiment.read(given, description)
    parameters = load.params()
    assert list(parameters) == ["strategy", "rule", "workers", "batch_per_worker", "batch_global", "lr", "clock"]
    assert all(value not in (None, "") for value in parameters.values())
    for name, value in (("batch_per_worker", load.batch.per_worker), ("batch_global", load.batch.together)):
        assert parameters[name] == ("unknown" if value is None else value)
    if load.rate.requested is None:
        assert parameters["lr"] == "unknown"
