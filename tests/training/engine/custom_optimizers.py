"""Optimizers that keep their state in every awkward way that can be followed, and some in ways that cannot."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer


class Plain(Optimizer):
    """Calls `begins()` in each step, then `update(group, parameter, state)` for every parameter with a gradient."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            with torch.enable_grad():
                self.sees(closure())
        self.begins()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(group, parameter, self.state[parameter])

    def sees(self, loss: float) -> None:
        """What the closure has returned."""

    def begins(self) -> None:
        """Before the updates."""

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


class CountsInGroups(Plain):
    """Keeps its step count in the param group, as most optimizers of other packages do; 1/step as learning rate."""

    def begins(self) -> None:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        parameter.sub_(group["lr"] / group["k"] * parameter.grad)


class Estimating(Plain):
    """Estimates its learning rate over all parameters, in the param group (as Prodigy does). Its fifth step, which no
    trial sees, keeps something more there, and changes what was a setting."""

    def __init__(self, params: Any, lr: float = 1.0) -> None:
        super().__init__(params, lr)
        for group in self.param_groups:
            group.update(d=0.01, factor=1.0, seen=0)

    def begins(self) -> None:
        for group in self.param_groups:
            gradients = [p.grad for p in group["params"] if p.grad is not None]
            group["seen"] += 1
            group["d"] = min(0.2, group["d"] * (1.0 + float(torch.stack([g.abs().mean() for g in gradients]).mean())))
            if group["seen"] >= 5:
                group["late"] = torch.tensor([group["d"]])
            if group["seen"] == 5:
                group["factor"] = 0.3

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        late = float(group["late"]) if "late" in group else 0.0
        parameter.sub_(group["lr"] * (group["d"] * group["factor"] + late) * parameter.grad)


class Nested(Plain):
    """Keeps lists and dicts of tensors, and None."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        assert parameter.grad is not None
        if not state:
            state["averages"] = {beta: torch.zeros_like(parameter) for beta in (0.5, 0.9)}
            state["ends"] = [parameter.clone(), [torch.zeros(())]]
            state["nothing"] = None
        assert state["nothing"] is None
        for beta, average in state["averages"].items():
            average.mul_(beta).add_(parameter.grad, alpha=1 - beta)
        state["ends"][1][0] += parameter.grad.norm()
        state["ends"][0] = state["ends"][0].lerp(parameter, 0.1)
        mean = sum(state["averages"].values())
        parameter.lerp_(state["ends"][0], 0.01).sub_(group["lr"] / (1 + state["ends"][1][0]) * mean)


class Worded(Nested):
    """Also a text, of which torch's `load_state_dict` makes another one."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        super().update(group, parameter, state)
        assert state.setdefault("kind", "mean") == "mean"


class Elsewhere(Plain):
    """Counts its steps in state that belongs to no parameter, and in an attribute."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.steps = 0

    def begins(self) -> None:
        self.steps += 1
        state: Any = self.state
        state["total"] = state.get("total", torch.zeros(1)) + 1

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        state = self.state  # type: ignore[assignment]
        total = float(state["total"])
        parameter.sub_(group["lr"] / total / self.steps**0.5 * parameter.grad)


class Modes(Plain):
    """Trains at one point and validates at another (as schedule-free ones); its count is in the group, the other point
    in the state."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        for group in self.param_groups:
            group.update(k=0, train_mode=False)

    @torch.no_grad()
    def _swap(self, to: bool, weight: float) -> None:
        for group in self.param_groups:
            if group["train_mode"] is not to:
                for parameter in group["params"]:
                    if "z" in self.state[parameter]:
                        parameter.lerp_(self.state[parameter]["z"], weight)
                group["train_mode"] = to

    def train(self) -> None:
        self._swap(to=True, weight=0.1)

    def eval(self) -> None:
        self._swap(to=False, weight=1 - 1 / 0.9)

    def begins(self) -> None:
        for group in self.param_groups:
            if not group["train_mode"]:
                raise RuntimeError("not in the mode for training")
            group["k"] += 1

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        if "z" not in state:
            state["z"] = parameter.clone()
        parameter.lerp_(state["z"], 1 / group["k"]).sub_(0.1 * group["lr"] * parameter.grad)
        state["z"].sub_(group["lr"] * parameter.grad)


class InAttribute(Plain):
    """Keeps the last gradients in an attribute."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.last: dict[Parameter, Any] = {}

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        parameter.sub_(group["lr"] * (parameter.grad + self.last.get(parameter, 0.0)))
        self.last[parameter] = parameter.grad


class LooksAtLoss(Plain):
    """Takes a closure, which it need not have, and looks at the loss."""

    scale = 1.0

    def sees(self, loss: float) -> None:
        self.scale = float(loss)

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        parameter.sub_(group["lr"] * self.scale * parameter.grad)


class Wrapping(Plain):
    """Lets another one step."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.inner = torch.optim.SGD([p for group in self.param_groups for p in group["params"]], lr=lr, momentum=0.9)

    def begins(self) -> None:
        self.inner.step()

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        """The inner one has made it."""


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
    """Keeps a tensor that belongs to no parameter."""

    def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
        self.state["shared"]["last"] = parameter.grad  # type: ignore[index]


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
