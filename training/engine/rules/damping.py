"""What staleness does to an update: a smaller step, none at all, or a corrected gradient. Pure; works with any rule."""

from abc import ABC
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import Above, AtLeast, Below, BySettings
from scalebook.training.engine.rules.facts import DampingFacts, derive_facts

if TYPE_CHECKING:
    from torch import Tensor

DampingName = Literal["none", "inverse", "drop_above", "delay_compensation"]


class Damping(BySettings, ABC):
    """What staleness does to an update.

    To define a custom damping, derive from this class in a module that `scalebook.toml` names. Forms, validation and
    the engine learn what they need (`DampingFacts`) from the methods that the subclass overrides.
    """

    ARGUMENT = "damping"
    name: ClassVar[str]
    """Its name in messages; by default the name of the class."""
    words: ClassVar[str | None] = None
    """The label that tells runs apart, with arguments worth showing at any value (`drop above {limit}`); None: its
    name."""
    drops: ClassVar[bool]
    """Whether `accepts` can be False: set when a class overrides it. Under a rule that applies on arrival, an accepted
    gradient is then applied before the next push is judged."""
    scales: ClassVar[bool]
    """Whether `rate` can be another number than 1: set when a class overrides it."""
    compensates: ClassVar[bool]
    """Whether gradients pass through `compensate` before they are applied: set when a class overrides it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = vars(cls).get("name", cls.__name__)
        drops, scales = cls.accepts is not Damping.accepts, cls.rate is not Damping.rate
        derive_facts(cls, {"drops": drops, "scales": scales, "compensates": cls.compensate is not Damping.compensate})

    @property
    def keeps_squares(self) -> bool:
        """Whether `compensate` gets a running mean of squared gradients, kept beside the optimizer's state."""
        return False

    @classmethod
    def facts(cls) -> DampingFacts:
        """Its facts, for code that cannot import it."""
        return DampingFacts.of(cls)

    def accepts(self, staleness: int) -> bool:
        """Whether a gradient this stale counts; False drops it and counts the drop."""
        return True

    def rate(self, stalenesses: Sequence[int]) -> float:
        """Factor on the learning rate of an update that averages gradients this stale (one or more)."""
        return 1.0

    def compensate(
        self, gradient: "Tensor", newest: "Tensor", base: "Tensor", mean_square: "Tensor | None", out: "Tensor"
    ) -> None:
        """Write the corrected gradient into `out`, which may be `gradient` itself.

        All have one shape and type: flat, or one parameter's. `newest`: the parameters that the gradient is applied to.
        `base`: those it was computed from. `mean_square`: updated in place; zeros at first, kept by the caller, None
        unless `keeps_squares`.
        """
        out.copy_(gradient)


class NoDamping(Damping):
    """Ignores staleness."""

    name = "none"
    words = ""


class Inverse(Damping):
    """Divides the learning rate by the mean staleness of the update's gradients (Zhang et al. 2016, section 2.4).

    A staleness below 1 counts as 1, so fresh gradients keep the learning rate.
    """

    name = "inverse"
    words = "inverse damping"

    def rate(self, stalenesses: Sequence[int]) -> float:
        """1 / max(1, mean staleness)."""
        return 1.0 / max(1.0, sum(stalenesses) / len(stalenesses))


class DropAbove(Damping):
    """Drops and counts gradients staler than `limit`; the worker continues from the newest parameters.

    Args:
        limit: Largest staleness, in updates, that is still applied, 0 or more. A smaller limit means fresher updates,
            but more wasted gradients.
    """

    name = "drop_above"
    words = "drop above {limit}"

    def __init__(self, limit: Annotated[int, AtLeast(0, "0 for fresh gradients only, or more")] = 8) -> None:
        self.limit = limit

    def accepts(self, staleness: int) -> bool:
        """Whether `staleness` is at most `limit`."""
        return staleness <= self.limit


class DelayCompensation(Damping):
    """Corrects gradients for how far the parameters have moved (DC-ASGD: Zheng et al. 2017, section 3).

    A first-order Taylor step from the worker's parameters w_base to the newest w, with the squared gradient in place
    of the Hessian's diagonal: g + strength * g * g * (w - w_base), elementwise. Keeps w_base per worker.

    Args:
        strength: Factor on the correction (lambda_0 in the paper), 0 or more. 0 corrects nothing, and too large a
            factor makes training diverge. With `adaptive`, values around 1 or 2 are usual.
        adaptive: Divide the strength, for each element, by the root of a running mean of squared gradients (DC-ASGD-a).
        decay: Weight of the past in that running mean (m), from 0 to below 1. It has no effect unless `adaptive` is
            true.
        epsilon: Added to the running mean before the root, above 0. It has no effect unless `adaptive` is true.
    """

    name = "delay_compensation"
    words = "delay compensation"

    def __init__(
        self,
        strength: Annotated[float, AtLeast(0, "0.04, or 1 with adaptive")] = 0.04,
        adaptive: bool = False,
        decay: Annotated[float, AtLeast(0, "0.95"), Below(1, "0.95")] = 0.95,
        epsilon: Annotated[float, Above(0, "1e-7")] = 1e-7,
    ) -> None:
        self.strength = strength
        self.adaptive = adaptive
        self.decay = decay
        self.epsilon = epsilon

    @property
    def keeps_squares(self) -> bool:
        """True if `adaptive`."""
        return self.adaptive

    def compensate(
        self, gradient: "Tensor", newest: "Tensor", base: "Tensor", mean_square: "Tensor | None", out: "Tensor"
    ) -> None:
        """The first-order step; allocates one tensor, two when adaptive."""
        import torch  # whoever has tensors has it loaded; the rest of this module does without

        with torch.no_grad():
            correction = (newest - base).mul_(gradient).mul_(gradient)
            if self.adaptive:
                assert mean_square is not None, "adaptive compensation needs a mean square"
                mean_square.mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
                correction.div_((mean_square + self.epsilon).sqrt_())
            torch.add(gradient, correction, alpha=self.strength, out=out)


DAMPINGS: Final[dict[str, type[Damping]]] = {
    damping.name: damping for damping in (NoDamping, Inverse, DropAbove, DelayCompensation)
}


def make_damping(damping: DampingName | Damping) -> Damping:
    """The damping itself, or the one of this name with its defaults."""
    if isinstance(damping, Damping):
        return damping
    if damping not in DAMPINGS:
        raise ArgumentError(
            "unknown-value", Damping.ARGUMENT, f"{damping!r} is unknown", f"Use one of {', '.join(DAMPINGS)}."
        )
    return DAMPINGS[damping]()
