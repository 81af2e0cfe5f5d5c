"""A batch on its way through the stages of a model, each on a worker: the user's own steps, forward and backward.

Worker k of a pipeline has stage k. All of them read the same batches. In training the step of the module is called for
each microbatch by the first worker, as far as `self(...)`, whose argument is the first stage's input, and by the last
worker, where `self(...)` is the last stage's output. Otherwise all workers make the step, and `self(...)` is the
output of the last stage in each of them.

Torch's own schedules (`torch.distributed.pipelining`) take a loss function and targets in place of a step, and demand
one shape of all microbatches.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from torchmetrics import Metric
from typing_extensions import override

from scalebook.training.engine.rules import ArgumentError
from scalebook.training.experiments import pipeline_order
from scalebook.training.lightning.model_parallel.microbatches import LoggedCall, StepLog, divide
from scalebook.training.lightning.model_parallel.stages import HOW, OwnStage
from scalebook.training.lightning.package import LightningModule
from scalebook.training.lightning.process_group.evaluation import undone
from scalebook.training.lightning.process_group.neighbours import (
    Neighbour,
    TensorShape,
    filled,
    gather_values,
    layout_of,
    layouts_in,
    tensors_in,
    told_by,
)
from scalebook.training.lightning.random_streams import seeded, streams_of

APART: Final = 1e-3
"""Relative difference of two results that are not the same with other rounding."""
APART_IN_16_BITS: Final = 2e-2
NOTHING: Final = 1e-6
"""A loss that is rounding alone."""
OTHER_THAN_FORWARD: Final = (
    "model: running the parts of stages() in order gives a different result from forward of {}. Put everything that "
    "forward does into stages() as modules, including its first and last lines."
)


class Groups(NamedTuple):
    """Who is there: the process groups of this worker's pipeline, of which one carries gradients back, and of the
    workers that have the same stage; and the rank of each stage's worker in this pipeline."""

    forward: Any
    backward: Any
    same_stage: Any
    ranks: Sequence[int]


class _Reached(BaseException):
    """Leaves a step where it calls `self(...)`; no `except Exception` of the step stops it."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args_given, self.kwargs_given = args, kwargs


class Pipeline:
    """One worker's end of a pipeline.

    Attributes:
        own: The stage that this worker has.
        microbatches: Into how many parts a batch is divided, if it has so many samples.
        schedule: In which order they are computed.
        ran_s: Seconds in training steps, of which `waited_s` for other stages.
    """

    def __init__(
        self,
        module: LightningModule,
        groups: Groups,
        microbatches: int,
        schedule: pipeline_order.Schedule,
        device: torch.device,
    ) -> None:
        self.stages = len(groups.ranks)
        self.stage = groups.ranks.index(dist.get_rank())
        self.own = OwnStage(module, self.stage, self.stages)
        self.ran_s = 0.0
        self._module, self._groups, self._device = module, groups, device
        self.microbatches, self.schedule = microbatches, schedule
        self._log = StepLog(module)
        self._seed = (told_by(groups.ranks[-1], torch.initial_seed(), groups.forward, device), groups.ranks[0])
        self._streams = streams_of(device)
        self._forward = module.forward
        self._in_step: Callable[..., Any] | None = None  # what self(...) does in a step of a microbatch
        self._drawn: tuple[int, ...] = ()  # which random numbers are drawn
        self._evaluated, self._unchecked = 0, microbatches > 1
        self._before: Neighbour | None = None  # links for activations: from the stage before, to the one after
        self._after: Neighbour | None = None
        self._gradients_in: Neighbour | None = None
        self._gradients_out: Neighbour | None = None
        if self.stage:
            before = groups.ranks[self.stage - 1]
            self._before, self._gradients_out = self._link(groups.forward, before), self._link(groups.backward, before)
        if not self.is_last:
            after = groups.ranks[self.stage + 1]
            self._after, self._gradients_in = self._link(groups.forward, after), self._link(groups.backward, after)
        if dist.get_rank() or any(tensor.is_meta for tensor in self.own.foreign.values()):
            self.own.forget()
        module.forward = self._called  # type: ignore[method-assign]

    def _link(self, group: Any, neighbour: int) -> Neighbour:
        return Neighbour(group, neighbour, self._device, self.stages)

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    @property
    def sent_bytes(self) -> int:
        """Bytes of activations and gradients that this worker has sent to its neighbours."""
        return sum(link.sent_bytes for link in (self._after, self._gradients_out) if link is not None)

    @property
    def waited_s(self) -> float:
        return sum(link.waited_s for link in (self._before, self._gradients_in) if link is not None)

    # --- what self(...) is ---------------------------------------------------------------------------------------

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        return (self._in_step or self._evaluate)(*args, **kwargs)

    def _evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the last stage, without gradients, in all workers of the pipeline; all must call it."""
        self._evaluated += 1
        self._drawn = (0, self._evaluated)
        with torch.no_grad():
            if self._before is None:
                value = self._computed(*args, **kwargs)
            else:
                value = self._computed(self._received(self._before))
            if self._after is not None:
                self._sent(self._after, value)
                self._after.flush()
            return self._shared(value)

    def _computed(self, *args: Any, **kwargs: Any) -> Any:
        """The output of this worker's stage."""
        if self.own.foreign:
            self._compare(args, kwargs)
        with self._random(self.stage):
            return self.own.computed(*args, **kwargs)

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Once, in worker 0: the stages in turn must be what the module's own `forward` is."""
        values, module = {**self.own.foreign, **self.own.values(with_rest=True)}, self._module
        self.own.forget()
        if type(module).forward is LightningModule.forward:
            return
        modes = {part: part.training for part in module.modules()}
        args, kwargs = tree_map_only(Tensor, lambda each: each.detach().cpu(), (args, kwargs))
        everything = {name: value.cpu() for name, value in values.items()}
        with torch.no_grad(), self._random(self.stage), self.own.whole(everything):
            module.eval()
            written, value = self._forward(*args, **kwargs), self.own.all_computed(*args, **kwargs)
        for part, mode in modes.items():
            part.training = mode
        if not is_alike(written, value):
            raise ValueError(OTHER_THAN_FORWARD.format(type(module).__name__))

    # --- random numbers ------------------------------------------------------------------------------------------

    @contextmanager
    def _random(self, *who: int) -> Iterator[None]:
        """Random numbers of a stage, or of a step: the same whatever the schedule, and whatever else is drawn; those of
        the process, which draw the order of data, stay as they are in all workers."""
        with seeded(self._streams, zlib.crc32(repr((self._seed, *self._drawn, *who)).encode())):
            yield

    # --- sending and receiving -----------------------------------------------------------------------------------

    def _sent(self, link: Neighbour, value: Any, key: Any = None) -> list[Tensor]:
        """Send an output to the stage after; its tensors. `key`: what the layout follows from, so that it is sent
        once."""
        layout = layout_of(value)
        if (
            other := next((one for one in tree_leaves(layout) if not isinstance(one, TensorShape | None)), None)
        ) is not None:
            raise ValueError(
                f"model: the output of stage {self.stage} has a {type(other).__name__}, but only tensors can pass "
                "between stages. Return only tensors, in tuples, lists and dicts."
            )
        if key is None or key not in link.layouts:
            link.say(layout)
            link.layouts[key] = layout
        elif link.layouts[key] != layout:
            raise ValueError(
                f"model: the output of stage {self.stage} is {_words(layout)}, but was {_words(link.layouts[key])} for "
                "a batch of the same shape. Shapes between stages must depend only on the batch's shape: pad the "
                "tensors, or use shard."
            )
        tensors = tensors_in(value)
        link.send(tensors)
        return tensors

    def _received(self, link: Neighbour, key: Any = None, is_expected: bool = False) -> Any:
        """The output of the stage before."""
        if key is None or key not in link.layouts:
            link.layouts[key] = link.hear()
        layout = link.layouts[key]
        if not is_expected:
            link.expect(layouts_in(layout))
        return filled(layout, link.receive())

    def _shared(self, value: Any) -> Any:
        """A value of the last worker, in all of the pipeline."""
        layout = self._told(layout_of(value))
        tensors = [tensor.contiguous() for tensor in tensors_in(value)]
        if not self.is_last:
            tensors = [torch.empty(one.shape, dtype=one.dtype, device=self._device) for one in layouts_in(layout)]
        for tensor in tensors:
            self._spread(tensor)
        return value if self.is_last else filled(layout, tensors)

    def _spread(self, tensor: Tensor) -> None:
        """Write the last worker's values into a contiguous tensor, in all of the pipeline."""
        dist.broadcast(tensor.detach().view(-1).view(torch.uint8), self._groups.ranks[-1], self._groups.forward)

    def _told(self, value: Any) -> Any:
        return told_by(self._groups.ranks[-1], value, self._groups.forward, self._device)

    # --- training ------------------------------------------------------------------------------------------------

    def train(
        self, number: int, is_first: bool, forwards: Callable[[], AbstractContextManager[Any]], *args: Any
    ) -> Tensor:
        """The module's `training_step(*args)`, of which the first is the batch, over all stages: the loss, in all
        workers. Its backward pass hands over the gradients, which are computed already.

        Args:
            number: Of the batch since training began.
            is_first: Whether it is the first one of an epoch.
            forwards: What is entered for each forward pass (the precision's context).
        """
        begun = perf_counter()
        for link in (self._before, self._after):
            if link is not None and is_first:
                link.layouts = {}  # layers may have been frozen since the last epoch
        parameters = [parameter for parameter in self._module.parameters() if not parameter.is_meta]
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        if self._unchecked:
            self._unchecked = False
            self._check_loss(forwards, args)
        run = _Run(self, (1, number), forwards, args, self.microbatches)
        for operation, microbatch in pipeline_order.order(
            self.schedule, self.stage, self.stages, len(run.microbatches)
        ):
            (run.forward if operation == "forward" else run.backward)(microbatch)
        for link in (self._after, self._gradients_out):
            if link is not None:
                link.flush()
        gradients = self._averaged([parameter.grad for parameter in parameters], parameters)
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
        loss, logged = self._told((run.loss, [tuple(one) for one in self._log.summary()]))
        self._log.repeat(LoggedCall(*one) for one in logged)
        self.ran_s += perf_counter() - begun
        start = torch.tensor(loss, device=self._device, requires_grad=True)  # a stage may have nothing to train
        handed: Tensor = _HandOver.apply(start, gradients, *parameters)  # type: ignore[no-untyped-call]
        return handed

    def _check_loss(self, forwards: Callable[[], AbstractContextManager[Any]], args: tuple[Any, ...]) -> None:
        """Before the first update: the loss of a batch must be the mean over its microbatches, but for what is drawn in
        it. Nothing is changed by it."""
        modes = {part: part.training for part in self._module.modules()}
        links = [link for link in (self._before, self._after) if link is not None]
        before = [(link.sent_bytes, link.waited_s) for link in links]
        self._module.eval()
        losses = []
        with torch.no_grad(), undone([*self._module.modules()]):
            for number, count in enumerate((1, self.microbatches, 1)):
                run = _Run(self, (2, number), forwards, args, count)
                for microbatch in range(len(run.microbatches)):
                    run.forward(microbatch)
                if self._after is not None:
                    self._after.flush()
                losses.append(run.loss)
        self._log.summary()
        for part, mode in modes.items():
            part.training = mode
        for link, (sent_bytes, waited_s) in zip(links, before, strict=True):
            link.sent_bytes, link.waited_s, link.layouts = sent_bytes, waited_s, {}
        once, divided, again = losses
        apart = APART if "32" in str(self._module.trainer.precision) else APART_IN_16_BITS
        if self.is_last and once == again and abs(once - divided) > apart * max(abs(once), abs(divided)) + NOTHING:
            raise ArgumentError(
                "contradiction",
                "microbatches",
                f"the loss of the first batch is {once:.6g}, but the mean over its microbatches is {divided:.6g}",
                "Return a loss from training_step that is a mean over samples and does not compare samples with each "
                "other, or set microbatches: 1 and schedule: gpipe.",
            )

    def _averaged(self, gradients: list[Tensor | None], parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """Over the workers that have the same stage. One that has no gradient of a parameter counts as 0, unless none
        has."""
        group = self._groups.same_stage
        if (workers := dist.get_world_size(group)) == 1 or not parameters:
            return gradients
        has = torch.tensor([gradient is not None for gradient in gradients], dtype=torch.uint8, device=self._device)
        dist.all_reduce(has, dist.ReduceOp.MAX, group)
        averaged: list[Tensor | None] = []
        for gradient, parameter, is_there in zip(gradients, parameters, has.tolist(), strict=True):
            each = torch.zeros_like(parameter) if gradient is None and is_there else gradient
            averaged.append(each)
        for dtype in sorted({each.dtype for each in averaged if each is not None}, key=str):
            alike = [each for each in averaged if each is not None and each.dtype == dtype]
            flat = torch.cat([each.flatten() for each in alike])
            dist.all_reduce(flat, group=group)
            flat /= workers
            for each, part in zip(alike, torch.split(flat, [each.numel() for each in alike]), strict=True):
                each.copy_(part.view_as(each))
        return averaged

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The 2-norm of these and of all other stages' gradients, 0-dimensional. All must call it."""
        squares = [torch.linalg.vector_norm(gradient).square() for gradient in gradients]
        total = torch.stack([torch.zeros((), device=self._device), *squares]).sum()
        dist.all_reduce(total, group=self._groups.forward)
        return total.sqrt()

    # --- what the last stage's worker alone has ------------------------------------------------------------------

    def share_rest(self) -> None:
        """Give all workers of the pipeline what steps of training change in the last one, besides its stage: the
        parameters and buffers of no stage, and the states of torchmetrics."""
        for name, tensor in self.own.values(with_rest=True).items():
            if name in self.own.rest:
                whole = tensor.contiguous()
                self._spread(whole)
                tensor.copy_(whole)
        metrics = {name: part for name, part in self._module.named_modules() if isinstance(part, Metric)}
        if metrics:
            states = self._told({name: _state_of(metric) for name, metric in metrics.items()} if self.is_last else None)
            for name, metric in metrics.items() if not self.is_last else ():
                for key, value in states[name].items():
                    setattr(metric, key, tree_map_only(Tensor, lambda each: each.to(self._device), value))

    def gathered(self, value: Any) -> list[Any] | None:
        """The values of all stages, in this pipeline's first worker."""
        return gather_values(value, self._groups.ranks, self._groups.forward, self._device)

    @contextmanager
    def whole(self) -> Iterator[bool]:
        """The module has all its values and its own `forward` in the block, in the first worker, which gets True."""
        values = self.gathered(self.own.values(with_rest=self.is_last))
        if values is None:
            yield False
            return
        everything = {name: value.to(self._device) for one in values for name, value in one.items()}
        with self.own.whole(everything):
            self._in_step = self._forward
            try:
                yield True
            finally:
                self._in_step = None


class _Run:
    """One batch through one stage."""

    def __init__(
        self,
        pipeline: Pipeline,
        drawn: tuple[int, ...],
        forwards: Callable[[], AbstractContextManager[Any]],
        args: tuple[Any, ...],
        microbatches: int,
    ) -> None:
        self._pipeline, self._drawn, self._forwards, self._more = pipeline, drawn, forwards, args[1:]
        self.microbatches = divide(args[0], microbatches)
        self.loss = 0.0
        self._keys = [tuple(layouts_in(layout_of(batch))) for batch, _ in self.microbatches]
        self._of_inputs: dict[int, list[Tensor]] = {}  # gradients
        self._outputs: dict[int, list[Tensor]] = {}
        operations = pipeline_order.order(pipeline.schedule, pipeline.stage, pipeline.stages, len(self.microbatches))
        self._arriving = deque(each for operation, each in operations if operation == "forward")
        self._returning = deque(each for operation, each in operations if operation == "backward")
        self._expected: set[tuple[str, int]] = set()

    def forward(self, microbatch: int) -> None:
        pipeline = self._pipeline
        pipeline._drawn = (*self._drawn, microbatch)
        batch, share = self.microbatches[microbatch]
        value: Any = None
        if pipeline._before is not None:
            value = self._input(microbatch)
        with self._forwards():
            if pipeline._before is None:
                args, kwargs = self._start(batch)
                value = pipeline._computed(*args, **kwargs)
            elif pipeline.is_last:
                value = self._step(batch, share, value)
            else:
                value = pipeline._computed(value)
        if pipeline._after is None:
            self._outputs[microbatch] = [value]
        else:
            sent = pipeline._sent(pipeline._after, value, self._keys[microbatch])
            self._outputs[microbatch] = [tensor for tensor in sent if tensor.requires_grad]

    def backward(self, microbatch: int) -> None:
        pipeline = self._pipeline
        outputs = self._outputs.pop(microbatch)
        if pipeline._gradients_in is None:
            torch.autograd.backward(outputs[0] * self.microbatches[microbatch][1])
        else:
            torch.autograd.backward(outputs, self._gradients(microbatch, outputs))
        if pipeline._gradients_out is not None:
            pipeline._gradients_out.send(self._of_inputs.pop(microbatch))

    def _input(self, microbatch: int) -> Any:
        """The output of the stage before, and the next one begins to arrive."""
        pipeline, link = self._pipeline, self._pipeline._before
        assert link is not None
        value = pipeline._received(link, self._keys[microbatch], ("forward", microbatch) in self._expected)
        self._arriving.popleft()
        if self._arriving and (layout := link.layouts.get(self._keys[self._arriving[0]])) is not None:
            link.expect(layouts_in(layout))
            self._expected.add(("forward", self._arriving[0]))
        trained = [
            leaf
            for leaf, one in zip(tensors_in(value), layouts_in(link.layouts[self._keys[microbatch]]), strict=True)
            if one.is_trained
        ]
        self._of_inputs[microbatch] = []
        if trained and torch.is_grad_enabled():
            start = torch.zeros((), device=pipeline._device, requires_grad=True)
            _Received.apply(start, self._of_inputs[microbatch], *trained)  # type: ignore[no-untyped-call]
        return value

    def _gradients(self, microbatch: int, outputs: list[Tensor]) -> list[Tensor]:
        """Those of the outputs, from the stage after, and the next ones begin to arrive."""
        link = self._pipeline._gradients_in
        assert link is not None
        if ("backward", microbatch) not in self._expected:
            link.expect([layout_of(output) for output in outputs])
        gradients = link.receive()
        self._returning.popleft()
        if self._returning and (following := self._outputs.get(self._returning[0])) is not None:
            link.expect([layout_of(output) for output in following])
            self._expected.add(("backward", self._returning[0]))
        return gradients

    def _start(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the step gives to `self(...)`."""
        pipeline = self._pipeline
        try:
            self._stepped(batch, 0.0, self._reached)
        except _Reached as reached:
            given = reached.args_given, reached.kwargs_given
            if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(given)):
                raise ValueError(
                    f"model: the input that training_step of {type(pipeline._module).__name__} passes to self(...) "
                    "depends on trained parameters, but parameters before the first stage get no gradients. Make the "
                    "module with these parameters the first part of stages()."
                ) from None
            return given
        raise AssertionError("_stepped raises the error for what is missing")

    def _reached(self, *args: Any, **kwargs: Any) -> Any:
        raise _Reached(args, kwargs)

    def _step(self, batch: Any, share: float, received: Any) -> Tensor:
        """The loss of the step, in which `self(...)` is what was received, and what the last stage makes of it."""
        calls = 0

        def once(*_args: Any, **_kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise ValueError(
                    f"model: training_step of {type(self._pipeline._module).__name__} calls self(...) twice, but a "
                    "microbatch goes through the stages only once. Call it once, with all inputs concatenated "
                    "(torch.cat)."
                )
            return self._pipeline._computed(received)

        loss = self._stepped(batch, share, once)
        self.loss += share * float(loss.detach())
        return loss

    def _stepped(self, batch: Any, share: float, called: Callable[..., Any]) -> Tensor:
        pipeline, module = self._pipeline, self._pipeline._module
        reached = False

        def noted(*args: Any, **kwargs: Any) -> Any:
            nonlocal reached
            reached = True
            return called(*args, **kwargs)

        pipeline._in_step = noted
        try:
            with pipeline._random(-1), pipeline._log.taking(share, drops=not pipeline.is_last):
                result: Any = module.training_step(batch, *self._more)
        finally:
            pipeline._in_step = None
        kind = type(module).__name__
        if not reached:
            raise ValueError(
                f"model: training_step of {kind} does not call self(...), which returns the output of all stages. "
                f"{HOW}."
            )
        if isinstance(result, dict) and set(result) == {"loss"}:
            result = result["loss"]
        if not isinstance(result, Tensor):
            raise ValueError(
                f"model: training_step of {kind} returns {_kind_of(result)}, but each microbatch needs a loss. Return "
                "only the loss; log the rest."
            )
        return result


class _HandOver(torch.autograd.Function):
    """The loss, whose backward pass gives parameters gradients that are there already, times its own gradient.

    Lightning zeroes gradients after `training_step`, so what was computed there cannot stay in the parameters.
    """

    @staticmethod
    @override
    def forward(ctx: Any, loss: Tensor, gradients: list[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    @override
    def backward(ctx: Any, factor: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        assert gradients is not None, "gradients can be handed over only once"
        return None, None, *(gradient if gradient is None else gradient.mul_(factor) for gradient in gradients)


class _Received(torch.autograd.Function):
    """Lets what has arrived be the output of an operation, so that a stage may write into it, and takes its gradients
    into a list."""

    @staticmethod
    @override
    def forward(ctx: Any, start: Tensor, gradients: list[Tensor], *arrived: Tensor) -> tuple[Tensor, ...]:
        ctx.gradients = gradients
        ctx.mark_dirty(*arrived)
        return arrived

    @staticmethod
    @override
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.gradients += gradients
        return None, None, *(None for _ in gradients)


def is_alike(one: Any, other: Any) -> bool:
    """Whether two outputs are the same but for rounding."""
    left, right = tree_leaves(one), tree_leaves(other)
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.allclose(a.float(), b.float(), APART, APART * float(b.float().abs().max() or 1))
        if isinstance(a, Tensor) and isinstance(b, Tensor)
        else type(a) is type(b)
        for a, b in zip(left, right, strict=True)
    )


def _words(layout: Any) -> str:
    return ", ".join(f"{list(one.shape)} {one.dtype}" for one in layouts_in(layout))


def _kind_of(result: Any) -> str:
    return "a dict with more than a loss" if isinstance(result, dict) else f"a {type(result).__name__}"


def _state_of(metric: Metric) -> dict[str, Any]:
    """What a torchmetric has counted."""
    state = {key: getattr(metric, key) for key in metric._defaults}
    on_cpu: dict[str, Any] = tree_map_only(Tensor, lambda each: each.detach().cpu(), state)
    return {**on_cpu, "_update_count": metric._update_count, "_computed": None}
