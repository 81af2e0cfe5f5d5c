"""Forks the processes of a strategy, and brings worker 0's results back to the Trainer that was called."""

import os
import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import IO, Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from scalebook.training.base import ProcessLost, active_run
from scalebook.training.engine import anonymous_file
from scalebook.training.lightning import random_streams
from scalebook.training.lightning.package import (
    OTHER,
    OTHER_INTERFACE,
    PACKAGE,
    Callback,
    ClusterEnvironment,
    CSVLogger,
    ExperimentWriter,
    LightningDataModule,
    LightningEnvironment,
    PassThroughProfiler,
    Profiler,
    PyTorchProfiler,
    SimpleProfiler,
    SLURMEnvironment,
    TorchElasticEnvironment,
    Trainer,
    TrainerFn,
    TrainerState,
    TrainerStatus,
    _check_bad_cuda_fork,
    _interrupt,
    _Launcher,
    call,
    move_data_to_device,
    rank_zero_warn,
)
from scalebook.training.lightning.processes.cuda_fork import refuse_process_group
from scalebook.training.lightning.processes.forked import EndedEarly, WorkerTraceback
from scalebook.training.lightning.processes.inherited import begin_worker, check_inherited
from scalebook.training.lightning.processes.peer_monitor import NONE, PeerMonitor
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.run_workers import run_workers
from scalebook.training.lightning.processes.threads import check_fork


class StartedEnvironment(LightningEnvironment):
    """A cluster environment whose ranks are those of the started process, and after the fork those of the worker.

    It replaces Lightning's own for torchrun and Slurm, which expect one started process per worker.
    """

    @property
    @override
    def creates_processes_externally(self) -> bool:
        return False

    @override
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)

    @override
    def node_rank(self) -> int:
        ranks = (os.environ.get(name) for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID"))
        return int(next((rank for rank in ranks if rank), 0))


def ours(environment: ClusterEnvironment | None) -> ClusterEnvironment | None:
    """A StartedEnvironment instead of Lightning's for torchrun or Slurm; any other unchanged."""
    is_lightnings = isinstance(environment, TorchElasticEnvironment | SLURMEnvironment)
    return StartedEnvironment() if is_lightnings else environment


def forks(environment: ClusterEnvironment) -> bool:
    """Whether workers are forked; not if MPI, LSF, or whoever sets LOCAL_RANK starts them all."""
    return isinstance(environment, LightningEnvironment) and not environment.creates_processes_externally


Values = dict[tuple[str, int], dict[str, Any]]
"""Values by callback; the key is its class and a number, or "" and its index among the Trainer's callbacks before the
fork."""
_PLAIN: Final = (
    bool, int, float, complex, str, bytes, PurePath, datetime, timedelta, Enum, Tensor, np.ndarray, np.generic,
    set, frozenset, type(None),
)  # fmt: skip


def callback_values(trainer: Trainer, before: Sequence[Callback]) -> Values:
    """Each callback's attributes that are plain data, with tensors on the CPU; in worker 0, after its work.

    They include paths, scores and counts of checkpoints and early stopping, and lists in the user's callbacks. No code
    of the callback is called, and what is not plain data (a Trainer, a logger, a lock) is left out.
    """
    return {key: _plain_attributes(callback) for key, callback in _by_key(trainer, before).items()}


def give_callback_values(trainer: Trainer, before: Sequence[Callback], values: Values) -> None:
    """Set the values on the callbacks here, also on those that the model's `configure_callbacks` returns, which are
    created as in the worker."""
    if any(kind and not kind.startswith("scalebook.") for kind, _ in values):
        profiler, trainer.profiler = trainer.profiler, PassThroughProfiler()  # type: ignore[attr-defined]  # untyped
        try:  # a profiler would begin here, where nothing is trained
            trainer._callback_connector._attach_model_callbacks()
        finally:
            trainer.profiler = profiler  # type: ignore[attr-defined]
    for key, callback in _by_key(trainer, before).items():
        vars(callback).update(values.get(key, {}))


def _values_after(error: BaseException, trainer: Trainer, before: Sequence[Callback]) -> Values:
    """The values in a worker that an exception ends. One that leaves a GPU unusable leaves tensors there unreadable."""
    try:
        return callback_values(trainer, before)
    except Exception as second:  # noqa: BLE001  # the first is what a person must read; a note says this one
        error.add_note(f"The callbacks' values could not be read in the worker: {type(second).__name__}: {second}")
        return {}


def _give_values_left(error: BaseException, before: Sequence[Callback]) -> None:
    """Set the values that come with a worker's exception on the Trainer's own callbacks, not on those that a model
    configures."""
    left: Values | None = error.__cause__.result if isinstance(error.__cause__, WorkerTraceback) else None
    for (kind, place), values in (left or {}).items():
        if not kind:
            vars(before[place]).update(values)


class _Aside(Callback):
    """In the place of a Trainer's callbacks while Lightning says `on_exception` in the process that called: they have
    seen the exception in their worker, and here no training. Then they are back."""

    def __init__(self, callbacks: list[Callback]) -> None:
        self._callbacks = callbacks

    @classmethod
    def put(cls, trainer: Trainer) -> list[Callback]:
        """Replace the callbacks, and return them."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        trainer.callbacks = [cls(callbacks)]  # type: ignore[attr-defined]
        return callbacks

    @override
    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        trainer.callbacks = self._callbacks  # type: ignore[attr-defined]

    @override
    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Of a Tuner, whose exception is an end, not an error."""
        trainer.callbacks = self._callbacks  # type: ignore[attr-defined]


def _by_key(trainer: Trainer, before: Sequence[Callback]) -> dict[tuple[str, int], Callback]:
    places = {id(callback): place for place, callback in enumerate(before)}
    seen: Counter[str] = Counter()
    keyed = {}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # made by Lightning's callback connector
        kind = "" if id(callback) in places else f"{type(callback).__module__}.{type(callback).__qualname__}"
        keyed[kind, places.get(id(callback), seen[kind])] = callback
        seen[kind] += 1
    return keyed


def _logger_values(trainer: Trainer) -> list[dict[str, Any]]:
    """For each logger which version of its folder worker 0 has chosen, and which columns a CSVLogger has written.

    Without them the next `test` with this Trainer would choose another version, or overwrite the file.
    """
    values = []
    for logger in trainer.loggers:
        version = getattr(logger, "_version", None)
        own = logger.__dict__.get("_experiment") if isinstance(logger, CSVLogger) else None
        written = None if own is None else _plain_attributes(own)
        values.append({"version": version if isinstance(version, int | str) else None, "written": written})
    return values


def _give_logger_values(trainer: Trainer, values: Sequence[Mapping[str, Any]]) -> None:
    """Set them on the loggers here."""
    for logger, value in zip(trainer.loggers, values, strict=True):
        if value["version"] is not None:
            logger._version = value["version"]  # type: ignore[attr-defined]  # what numbers its folders has it
        if value["written"] is not None:
            assert isinstance(logger, CSVLogger)
            if logger._experiment is None:  # its constructor would delete what the worker has written
                logger._experiment = ExperimentWriter.__new__(ExperimentWriter)
                logger._experiment._fs = logger._fs
            vars(logger._experiment).update(value["written"])


def _plain_attributes(values: Any) -> dict[str, Any]:
    plain = {name: value for name, value in vars(values).items() if is_plain(value)}
    return {name: move_data_to_device(value, "cpu") for name, value in plain.items()}


def is_plain(value: Any) -> bool:
    """Whether it is plain data, in tuples, lists and dicts, and can travel to another process."""
    if not all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(value)):
        return False
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError):  # a dict's key, or a factory: it stays in the worker
        return False
    return True


class Processes(NamedTuple):
    """How many processes to fork, and torch's threads in each; None: the cores are divided among the workers."""

    workers: int
    servers: int = 0
    threads: int | None = None
    first: int = 0
    """The number of the first of these workers; those before run on other nodes."""
    others: PeerMonitor = NONE
    elsewhere: Collection[int] = ()
    """Those of these workers that compute on another node: a process here is the proxy of each."""


class ServerEnded(Exception):  # an end, not an error
    """Raised in a server process after it has served, to leave the Trainer's set-up without training."""


def repr_for_trainers(strategy: object) -> str:
    """The repr that a Trainer of Lightning's other package shows when it refuses this strategy."""
    name = type(strategy).__name__
    return f"<{name} for Trainers of {PACKAGE}; for those of {OTHER}: from {OTHER_INTERFACE} import {name}>"


class AroundFork:
    """What a strategy does around the fork."""

    def tune(self, trainer: Trainer, run: Callable[[], Any], objects: Iterable[Any]) -> bool:
        """In the monitor, before all else: let callbacks search by calling `run` (see `tuners`). True: nothing else was
        asked for."""
        return False

    def before_fork(self, trainer: Trainer) -> Processes:
        """In the monitor: create what the processes will share."""
        raise NotImplementedError

    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """In worker `worker`: take the rank."""
        raise NotImplementedError

    def become_server(self, server: int, trainer: Trainer) -> None:
        """In server `server`. The strategy's `setup` is to serve, then to raise `ServerEnded`."""
        raise NotImplementedError

    def stand_in(self, worker: int, trainer: Trainer) -> None:
        """In the proxy of worker `worker` of another node: like `become_server`."""
        raise NotImplementedError

    def returns(self, worker: int, first: int) -> bool:
        """In worker `worker`, after its work: whether the Trainer here gets its results."""
        return worker == first

    def weights(self, trainer: Trainer) -> Mapping[str, Tensor]:
        """In such a worker, after a fit: the module's weights for the Trainer here."""
        return trainer.lightning_module.state_dict()

    def lost(self, lost: LostProcess) -> Reaction:
        """In the monitor: decide what follows a death."""
        return Reaction.END

    def arrivals(self) -> Sequence[int] | None:
        """In the monitor: how many meetings before training each worker has reached; None once training has begun."""
        return None

    def waits(self) -> Mapping[int, str]:
        """In the monitor: worker -> what it waits for, for waits in which nothing has happened for a minute."""
        return {}

    def save_final_state(self, trainer: Trainer) -> Any:
        """In worker 0, after its work: leave what the Trainer that was called may need later, or return it."""
        return None

    def give_final_state(self, trainer: Trainer, state: Any) -> None:
        """In the monitor, at the end: give the Trainer what `save_final_state` has returned."""

    def explained(self, error: ProcessLost, callbacks: list[Callback]) -> ProcessLost:
        """In the monitor: the error that ends the run, with further information; `callbacks` are the Trainer's."""
        return error

    def after_workers(self) -> None:
        """In the monitor: clean up when all processes have ended, however they did."""


class ForkLauncher(_Launcher):
    """Runs a Trainer's function in forked workers; this process only watches them.

    An exception ends a worker like a Trainer in its own process (callbacks' `on_exception`, loggers finalised), and is
    raised here again; `WorkerLost` or `ServerLost` if one dies and the strategy cannot go on. Afterwards the Trainer
    here has the first worker's weights, metrics, state and progress, and its callbacks have the values from there
    (`callback_values`). After an exception they have those of the worker that raised it; weights and metrics do not
    change.
    """

    def __init__(self, around: AroundFork) -> None:
        self._around = around
        self._already_fit = False

    @property
    @override
    def is_interactive_compatible(self) -> bool:
        return True

    @override
    def kill(self, signum: int) -> None:
        """Do nothing: `run_workers` ends what it has started, however `launch` is left."""

    @override
    def launch(self, function: Callable[..., Any], *args: Any, trainer: Trainer | None = None, **kwargs: Any) -> Any:
        assert trainer is not None, "started without a Trainer"
        device = trainer.strategy.root_device
        if device.type == "cuda":  # on a CPU a fork of a process that has counted GPUs trains as any other
            _check_bad_cuda_fork()
        check_fork(device)
        refuse_process_group()
        if self._already_fit and trainer.state.fn == TrainerFn.FITTING:
            raise RuntimeError("this Trainer has already been used for a fit. Create a new one.")

        if self._around.tune(trainer, partial(function, *args, **kwargs), (*args, *kwargs.values())):
            trainer.state.status, trainer.state.stage = TrainerStatus.FINISHED, None
            return None

        def work(worker: int) -> "_Results | None":
            begin_worker(inherited)
            if worker in processes.elsewhere:
                self._around.stand_in(worker, trainer)
                with suppress(ServerEnded):
                    function(*args, **kwargs)
                return None
            self._around.after_fork(worker, trainer)
            try:
                with active_run.active_in_fork(run_id):
                    result = function(*args, **kwargs)
            except BaseException as error:
                _interrupt(trainer, error)
                trainer._teardown()
                raise EndedEarly(error, _values_after(error, trainer, before)) from error
            if not self._around.returns(worker, processes.first):
                return None
            final = self._around.save_final_state(trainer)
            weights = self._around.weights(trainer) if trainer.state.fn == TrainerFn.FITTING else None
            return _collect(trainer, result, tensors, before, weights, final)

        def serve(server: int) -> None:
            begin_worker(inherited)
            self._around.become_server(server, trainer)
            with suppress(ServerEnded):
                function(*args, **kwargs)

        before = list(trainer.callbacks)  # type: ignore[attr-defined]  # made by Lightning's callback connector
        run_id = active_run.active_run()
        processes = self._around.before_fork(trainer)
        options: dict[str, Any] = {"threads": processes.threads, "arrivals": self._around.arrivals}
        options["waits"] = self._around.waits
        options |= {"first": processes.first, "others": processes.others}
        if processes.servers:
            options |= {"servers": processes.servers, "serve": serve}
        with os.fdopen(anonymous_file("results"), "w+b") as tensors:
            try:
                inherited = check_inherited((*args, *kwargs.values()), processes.workers)
                returned = run_workers(processes.workers, work, lost=self._around.lost, **options)
                results = next((result for result in returned if result is not None), None)
            except BaseException as error:
                callbacks = _Aside.put(trainer)
                _give_values_left(error, before)
                if isinstance(error, ProcessLost):
                    raise self._around.explained(error, callbacks) from error.__cause__
                raise
            finally:
                self._around.after_workers()
            assert isinstance(results, _Results)
            self._already_fit |= trainer.state.fn == TrainerFn.FITTING
            brought = _bring_back(trainer, results, tensors, before, (*args, *kwargs.values()))
            self._around.give_final_state(trainer, results.final)
            return brought


class _Results(NamedTuple):
    """What worker 0 sends back; its tensors lie in a file in memory, which all processes have from before the fork."""

    state: TrainerState
    returned: Any
    progress: dict[str, Any]
    profiled: dict[str, Any]
    loggers: list[dict[str, Any]]
    callbacks: Values
    final: Any
    """What the strategy's `save_final_state` has returned."""
    drawn: list[Any]
    """Where its random numbers have come to, so that a script continues with them as after a fit in its own process."""


def _collect(
    trainer: Trainer,
    returned: Any,
    tensors: IO[bytes],
    before: Sequence[Callback],
    weights: Mapping[str, Tensor] | None,
    final: Any,
) -> _Results:
    torch.save({"metrics": [dict(metrics) for metrics in _metrics(trainer)], "weights": weights}, tensors)
    tensors.flush()
    progress = {} if weights is None else _progress(trainer)
    profile, loggers, values = _profile(trainer), _logger_values(trainer), callback_values(trainer, before)
    return _Results(trainer.state, returned, progress, profile, loggers, values, final, random_streams.states())


def _bring_back(
    trainer: Trainer, results: _Results, tensors: IO[bytes], before: Sequence[Callback], arguments: Sequence[Any]
) -> Any:
    tensors.seek(0)
    content = torch.load(tensors, map_location="cpu", weights_only=True)
    if content["weights"] is not None:
        _load(trainer, content["weights"], arguments)
    for here, there in zip(_metrics(trainer), content["metrics"], strict=True):
        here.clear()
        here.update(there)
    give_callback_values(trainer, before, results.callbacks)
    random_streams.load(results.drawn)
    trainer.state = results.state
    _give_profile(trainer, results.profiled)
    _give_logger_values(trainer, results.loggers)
    if results.progress:
        trainer.fit_loop.load_state_dict(results.progress)
        for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop, trainer.fit_loop.epoch_loop.val_loop):
            loop.on_iteration_done()  # it was loaded to be known, not to be gone on from
    return results.returned


def _metrics(trainer: Trainer) -> list[dict[str, Any]]:
    return [trainer.callback_metrics, trainer.logged_metrics, trainer.progress_bar_metrics]


def _profile(trainer: Trainer) -> dict[str, Any]:
    """The attributes with the profile, in worker 0 after its work. Profilers of workers write their files themselves,
    by rank."""
    profiler = _profiler(trainer)
    if isinstance(profiler, PyTorchProfiler):
        return {"function_events": profiler.function_events}
    if isinstance(profiler, SimpleProfiler):
        return {"recorded_durations": profiler.recorded_durations}
    return {}


def _give_profile(trainer: Trainer, state: dict[str, Any]) -> None:
    """Set these attributes on the profiler of the Trainer that `fit` was called on."""
    vars(_profiler(trainer)).update(state)


def _profiler(trainer: Trainer) -> Profiler:
    profiler: Profiler = trainer.profiler  # type: ignore[attr-defined]  # made by its constructor, untyped
    return profiler


def _load(trainer: Trainer, weights: dict[str, Tensor], arguments: Sequence[Any]) -> None:
    """Load a worker's weights into the module here, with the layers that `configure_model` makes, which may ask the
    Trainer for its data, one of the `arguments` of the fit."""
    module = trainer.lightning_module
    why = ""
    if not _unpruned(weights, module.state_dict()).keys() <= module.state_dict().keys():
        data = next((value for value in arguments if isinstance(value, LightningDataModule)), None)
        module.trainer, trainer.datamodule = trainer, data  # type: ignore[attr-defined]  # as in a process that trains
        try:
            _configure(trainer, data)
        except Exception as error:  # noqa: BLE001  # a person's code; the warning below says it
            why = f", because configure_model raised {type(error).__name__} here: {error}"
    weights = _unpruned(weights, module.state_dict())
    missing = [name for name in weights if name not in module.state_dict()]
    if missing:
        rank_zero_warn(
            f"model: after the fit, the module in this process lacks {', '.join(missing[:3])}"
            f"{' ...' if missing[3:] else ''}{why}. The workers trained these values. Load the run's checkpoint before "
            "you use the module."
        )
    _resize_buffers(module, weights)
    assign = {"assign": True} if any(tensor.is_meta for tensor in module.state_dict().values()) else {}
    module.load_state_dict(weights, strict=False, **assign)  # assigned where it was made without weights


def _resize_buffers(module: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Make room in buffers that have got another shape during training."""
    for name, buffer in [*module.named_buffers()]:
        if (trained := weights.get(name)) is not None and trained.shape != buffer.shape:
            path, _, key = name.rpartition(".")
            module.get_submodule(path)._buffers[key] = torch.empty_like(trained)


def _configure(trainer: Trainer, data: LightningDataModule | None) -> None:
    """Let the module make its layers, which may need the data as it is after `setup`."""
    try:
        call._call_configure_model(trainer)
    except Exception:
        if data is None:
            raise
        data.setup(TrainerFn.FITTING)
        call._call_configure_model(trainer)


def _unpruned(weights: dict[str, Tensor], own_weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`weights` with each pruned parameter as one tensor: torch splits it into `NAME_orig` and `NAME_mask`, and it is
    their product."""
    split = [name for name in own_weights if name not in weights and f"{name}_mask" in weights]
    parts = {f"{name}_{part}" for name in split for part in ("orig", "mask")}
    whole = {name: weights[f"{name}_orig"] * weights[f"{name}_mask"] for name in split}
    return {name: value for name, value in weights.items() if name not in parts} | whole


def _progress(trainer: Trainer) -> dict[str, Any]:
    """The fit loop's counts of epochs, batches and steps, without the position of its loaders."""
    progress = trainer.fit_loop.state_dict()
    progress["state_dict"].pop("combined_loader", None)
    return progress


def take_rank(worker: int, workers: int, on_each: int | None = None) -> None:
    """Make this process worker `worker` of `workers`, for all code that asks Lightning or the environment (RANK,
    WORLD_SIZE). `on_each`: workers on each of several nodes."""
    from lightning_utilities.core.rank_zero import rank_zero_only as utilities_rank_zero

    from scalebook.training.lightning.package import rank_zero_only as fabric_rank_zero

    node, local = divmod(worker, on_each or workers)
    ranks = {"LOCAL_RANK": local, "RANK": worker, "WORLD_SIZE": workers, "NODE_RANK": node}
    os.environ |= {name: str(rank) for name, rank in ranks.items()}
    fabric_rank_zero.rank = utilities_rank_zero.rank = worker  # type: ignore[attr-defined]  # Lightning's own way
