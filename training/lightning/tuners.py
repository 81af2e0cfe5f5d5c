"""Lightning's tuner callbacks for workers that share a model: one process searches before the workers start."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from scalebook.training.lightning.package import (
    BatchSizeFinder,
    Callback,
    DummyLogger,
    LearningRateFinder,
    SingleDeviceStrategy,
    Trainer,
    TrainerFn,
    _call_teardown_hook,
    _determine_lr_attr_name,
    _interrupt,
    _TunerExitException,
)
from scalebook.training.lightning.processes.run_workers import run_workers

Finder = BatchSizeFinder | LearningRateFinder


def is_finder(callback: Callback) -> bool:
    """Whether it is one of Lightning's own finders, which search once, before training; a subclass may search later."""
    return type(callback) in (BatchSizeFinder, LearningRateFinder)


def tune(trainer: Trainer, run: Callable[[], Any], objects: Iterable[Any]) -> bool:
    """Let each finder among the callbacks search, in the monitor, before workers are forked. Returns True if nothing
    else was asked for.

    A finder calls `run`, which is the Trainer's own call, on one device, like a plain Trainer; so its answer holds for
    a worker that computes alone. A search by Lightning's Tuner, which asks for nothing else, runs in this process, so
    that the Trainer keeps loaders and model of the search. Any other search runs in a forked process, and its answer is
    set on the model here, and on data modules among `objects`.
    """
    finders = [callback for callback in trainer.callbacks if is_finder(callback)]  # type: ignore[attr-defined]  # a connector's
    for finder in finders:
        if isinstance(finder, LearningRateFinder) and trainer.state.fn != TrainerFn.FITTING:
            continue
        if finder._early_exit and not torch.accelerator.is_available():  # what has used a GPU can fork no worker
            _search(trainer, run, finder)
            return True
        result = run_workers(1, partial(_search, trainer, run, finder))[0]
        name, value = _settle(trainer, finder, result)
        if name and value is not None:
            for holder in (trainer.lightning_module, *objects):
                _set(holder, name, value)
        if finder._early_exit:
            return True
    return False


def _search(trainer: Trainer, run: Callable[[], Any], finder: Finder, _worker: int = 0) -> Any:
    """Run the search; what the finder has found."""
    with _alone(trainer, finder):
        try:
            run()
        except _TunerExitException:
            _call_teardown_hook(trainer)
        except BaseException as error:
            _interrupt(trainer, error)
            raise
        finally:
            trainer._teardown()
    return finder.optimal_lr if isinstance(finder, LearningRateFinder) else finder.optimal_batch_size


@contextmanager
def _alone(trainer: Trainer, finder: Finder) -> Iterator[None]:
    """Meanwhile the Trainer has one device, no other callback and no logger; it ends when the finder has searched."""
    shared, early = trainer.strategy, finder._early_exit
    callbacks, loggers = trainer.callbacks, trainer.loggers  # type: ignore[attr-defined]  # a connector's
    alone = SingleDeviceStrategy(
        shared.root_device, shared.accelerator, shared.checkpoint_io, shared.precision_plugin
    )  # as Lightning makes it
    alone._lightning_module = shared.lightning_module
    trainer._accelerator_connector.strategy = alone
    trainer.callbacks = [finder]  # type: ignore[attr-defined]  # a connector's
    trainer.loggers = [DummyLogger()] if loggers else []
    finder._early_exit = True
    try:
        yield
    finally:
        trainer._accelerator_connector.strategy = shared
        trainer.callbacks = callbacks  # type: ignore[attr-defined]  # a connector's
        trainer.loggers, finder._early_exit = loggers, early
        fit = trainer.fit_loop.epoch_loop
        for loop in (fit, fit.val_loop, trainer.validate_loop, trainer.test_loop):
            loop._results.clear()  # what was logged would be reduced by the strategy of then


def _settle(trainer: Trainer, finder: Finder, result: Any) -> tuple[str, Any]:
    """Note the result of the search in the finder here; the name of the attribute to set, if one is to be, and its
    value."""
    if isinstance(finder, BatchSizeFinder):
        finder.optimal_batch_size = result
        return finder._batch_arg_name, result
    finder.optimal_lr = result
    if result is None or not finder._update_attr:
        return "", None
    return _determine_lr_attr_name(trainer.lightning_module, finder._attr_name), result.suggestion()


def _set(holder: Any, name: str, value: Any) -> None:
    if hasattr(holder, name):
        setattr(holder, name, value)
    if name in getattr(holder, "hparams", {}):
        holder.hparams[name] = value
