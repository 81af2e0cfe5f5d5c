"""Gradients that the model, or a callback, reads or changes between the backward pass and the step.

Under DDP that code sees the mean of all workers' gradients, since the backward pass averages them. Under a rule that
averages, the mean exists only when the update is made. So where such code may exist, the backward pass averages here,
too (`GradientMeans`); where it cannot, a change of the gradient is an error (`GradientWatch`). With local steps, and
under a rule that applies each gradient on arrival, the worker's own gradient is what its step uses.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter
from typing_extensions import override

from scalebook.training.engine.rules import Settings
from scalebook.training.lightning.async_ps.collective_order import OF_ONE_WORKER
from scalebook.training.lightning.async_ps.collectives import Collectives
from scalebook.training.lightning.package import Callback, LightningModule, Trainer

CLIPPING: Final = "configure_gradient_clipping"
_OF_MODULES: Final = ("on_after_backward", "on_before_optimizer_step", CLIPPING, "optimizer_step", "backward")
_OF_CALLBACKS: Final = ("on_after_backward", "on_before_optimizer_step")
_PIECE: Final = 16 << 20
"""Bytes that one exchange carries: between nodes a message has at most 64 MiB."""


def hooks_on_gradients(trainer: Trainer) -> list[str]:
    """What may read or change gradients before the step, such as `Net.on_after_backward`; the same in every worker."""
    module = trainer.lightning_module
    if not module.automatic_optimization:
        return [f"{type(module).__name__}.training_step"]
    objects: list[tuple[Any, type, Sequence[str]]] = [(module, LightningModule, _OF_MODULES)]
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
    objects += [(callback, Callback, _OF_CALLBACKS) for callback in callbacks if not _only_looks(callback)]
    return [
        f"{type(object_).__name__}.{name}"
        for object_, base, names in objects
        for name in names
        if name in vars(object_) or getattr(type(object_), name) is not getattr(base, name)
    ]


def _only_looks(callback: Callback) -> bool:
    """Whether it changes no gradient: one of ours, which measure, or of those that are not in every worker."""
    return isinstance(callback, OF_ONE_WORKER) or type(callback).__module__.startswith("scalebook.training.")


def averages_several(settings: Settings, workers: int) -> bool:
    """Whether an update is the mean of several gradients of workers that make no steps of their own."""
    return settings.most(workers) > 1 and not settings.pushes_rarely


def averages_in_backward(settings: Settings, workers: int) -> bool:
    """Whether the mean is known as soon as all workers have computed their gradients: it is of one gradient of each,
    and these are sent as they are. The workers must be processes."""
    return settings.meets_after_epochs(workers) and not settings.push_codec.codes


class _AfterBackward:
    """Calls `ended` at the end of each backward pass that adds to the gradient of one of these parameters."""

    def __init__(self, parameters: Sequence[Parameter], ended: Callable[[], None]) -> None:
        self._ended, self._is_due = ended, False
        self._handles = [_registered(parameter, self._accumulated) for parameter in parameters]

    def _accumulated(self, _parameter: Tensor) -> None:
        if not self._is_due:
            self._is_due = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._is_due = False
        self._ended()

    def remove(self) -> None:
        """Call it no more."""
        for handle in self._handles:
            handle.remove()


def _registered(parameter: Parameter, hook: Callable[[Tensor], None]) -> Any:
    """Also for a parameter that is to be unfrozen later."""
    before = parameter.requires_grad
    parameter.requires_grad_(True)
    try:
        return parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
    finally:
        parameter.requires_grad_(before)


class GradientHooks:
    """What a worker does about these hooks at each step: here, nothing."""

    is_accumulating = False
    """Whether a backward pass only adds to the gradients (`no_sync` of DDP)."""

    def before_hooks(self) -> None:
        """Before the first `on_before_optimizer_step`."""

    def computed(self) -> None:
        """Before the step."""

    def before_push(self) -> None:
        """When all hooks have run."""

    def remove(self) -> None:
        """At the end of training."""


class GradientMeans(GradientHooks):
    """Replaces the gradients by their mean over the workers at the end of each backward pass, as DDP does.

    The push then averages equal gradients. All workers must make the same backward passes in a batch. `trainer`: of
    this worker.
    """

    def __init__(self, parameters: Sequence[Parameter], collectives: Collectives, trainer: Trainer) -> None:
        self._parameters, self._collectives, self._trainer = parameters, collectives, trainer
        self._pieces = list(_pieces(parameters))
        self._is_done = False
        self._hook = _AfterBackward(parameters, self._backward_ended)

    @override
    def computed(self) -> None:
        """With automatic optimization each worker averages once, even if its loss has no gradient."""
        if self._trainer.lightning_module.automatic_optimization and not self._is_done:
            self._average()
        self._is_done = False

    @override
    def remove(self) -> None:
        self._hook.remove()

    def _backward_ended(self) -> None:
        in_batch = self._trainer.training and not self._collectives.places.at_boundary
        if in_batch and not self.is_accumulating:
            self._average()
            self._is_done = True

    @torch.no_grad()
    def _average(self) -> None:
        scale = self._loss_scale()
        for piece in self._pieces:
            parts = [_part(self._parameters[place], part, scale) for place, part in piece]
            for (place, part), mean in zip(piece, self._collectives.mean("backward", parts), strict=True):
                if mean is not None:
                    _put(self._parameters[place], part, mean if scale == 1.0 else mean * scale)

    def _loss_scale(self) -> float:
        """By which this worker's loss scaler multiplies; one that has restarted may have another."""
        scaler = getattr(self._trainer.precision_plugin, "scaler", None)
        return 1.0 if scaler is None else float(scaler.get_scale())


def _pieces(parameters: Sequence[Parameter]) -> Iterator[list[tuple[int, slice]]]:
    """What is exchanged at a time: parts of flat parameters, by their places."""
    piece, size = list[tuple[int, slice]](), 0
    for place, parameter in enumerate(parameters):
        most = _PIECE // parameter.element_size()
        for start in range(0, parameter.numel(), most):
            part = slice(start, min(start + most, parameter.numel()))
            nbytes = (part.stop - start) * parameter.element_size()
            if piece and size + nbytes > _PIECE:
                yield piece
                piece, size = [], 0
            piece.append((place, part))
            size += nbytes
    yield piece


def _part(parameter: Parameter, part: slice, scale: float) -> Tensor | None:
    """This part of the flat gradient; a sparse one is whole, with its first part."""
    gradient = parameter.grad
    if gradient is None or (gradient.is_sparse and part.start > 0):
        return None
    values = gradient.coalesce() if gradient.is_sparse else gradient.reshape(-1)[part]
    return values if scale == 1.0 else values / scale


def _put(parameter: Parameter, part: slice, mean: Tensor) -> None:
    if mean.is_sparse:
        parameter.grad = mean.to(parameter.device)
        return
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
    elif not parameter.grad.is_contiguous():
        parameter.grad = parameter.grad.contiguous()
    parameter.grad.view(-1)[part] = mean.to(parameter.device)


class GradientWatch(GradientHooks):
    """Raises an error if a gradient was changed after its backward pass, where the rule averages later.

    A change in `training_step`, `on_after_backward` or `optimizer_step` is found by `computed`, one in
    `on_before_optimizer_step` by `before_push`; a loss scaler divides between these two.
    """

    def __init__(self, parameters: Sequence[Parameter], changed: Callable[[], Exception]) -> None:
        self._parameters, self._changed = parameters, changed
        self._seen: list[tuple[int, int] | None] | None = None
        self._hook = _AfterBackward(parameters, self.before_hooks)

    @override
    def before_hooks(self) -> None:
        """Note the gradients as they are: a backward pass has ended, or `on_before_optimizer_step` begins."""
        self._seen = [_mark(parameter.grad) for parameter in self._parameters]

    @override
    def computed(self) -> None:
        now = [_mark(parameter.grad) for parameter in self._parameters]
        if self._seen is not None and any(one not in (None, was) for one, was in zip(now, self._seen, strict=True)):
            raise self._changed()

    @override
    def before_push(self) -> None:
        self.computed()
        self._seen = None

    @override
    def remove(self) -> None:
        self._hook.remove()


def _mark(gradient: Tensor | None) -> tuple[int, int] | None:
    """Another one after each write."""
    if gradient is None:
        return None
    return (gradient._values() if gradient.is_sparse else gradient).data_ptr(), gradient._version
