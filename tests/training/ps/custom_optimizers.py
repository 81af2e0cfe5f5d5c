"""Optimizers that keep their state in every awkward way that can be followed, and some in ways that cannot."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer


class Plain(Optimizer):
    """Calls `update(group, parameter, state)` for every parameter with a gradient."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(group, parameter, self.state[parameter])

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        raise NotImplementedError


class PythonNumbers(Plain):
    """Counts its steps in a Python int, sums in a Python float; 1/step as learning rate."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        assert parameter.grad is not None
        state["step"] = state.get("step", 0) + 1
        state["sum"] = state.get("sum", 0.0) + float(parameter.grad.sum())
        state["warm"] = state["step"] > 3
        parameter.add_(parameter.grad, alpha=-group["lr"] / state["step"] * (1 + 0.01 * state["sum"]))


class Rebinding(Plain):
    """Replaces its momentum by a new tensor in every step."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        old = state.get("momentum")
        state["momentum"] = parameter.grad if old is None else 0.9 * old + parameter.grad
        parameter.sub_(group["lr"] * state["momentum"])


class NoneAtFirst(Plain):
    """Keeps None until its second step; asks whether a parameter has state at all."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is None:
                continue
            if parameter not in self.state:
                self.state[parameter] = {"seen": torch.zeros(()), "late": torch.zeros_like(parameter)}
            self.state[parameter]["seen"] += 1
            self.state[parameter]["late"].mul_(0.5).add_(parameter.grad)
            parameter.sub_(self.state[parameter]["late"] / self.state[parameter]["seen"])


class StateInGroups(Plain):
    """Keeps its step count in the param group (as Prodigy and schedule-free optimizers do)."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        group["k"] = group.get("k", 0) + 1
        parameter.sub_(group["lr"] * parameter.grad)


class GrowingState(Plain):
    """Keeps a history that gets longer."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        row = parameter.grad.flatten()[None]  # type: ignore[union-attr]
        state["history"] = torch.cat([state["history"], row]) if "history" in state else row


class ListState(Plain):
    """Keeps a list of tensors."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        state.setdefault("past", []).append(parameter.grad)


class GlobalState(Plain):
    """Keeps state that belongs to no parameter."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        self.state["shared"]["norm"] = parameter.grad.norm()  # type: ignore[index,union-attr]


class Noisy(Plain):
    """Draws random numbers (stochastic gradient Langevin dynamics)."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        parameter.add_(torch.randn_like(parameter), alpha=group["lr"])


class LayerWise(Plain):
    """Scales each layer's step by ||weight|| / ||gradient||, with momentum, as LARS does (You et al. 2017)."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        assert parameter.grad is not None
        trust = parameter.norm() / (parameter.grad.norm() + 1e-8)
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(0.9).add_(parameter.grad * (trust * 0.01 * group["lr"]))
        parameter.sub_(state["momentum"])
