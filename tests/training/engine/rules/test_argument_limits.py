import copy
import inspect
from typing import TYPE_CHECKING, Annotated

import pytest

from scalebook.training.engine.rules.argument_limits import Above, AtLeast, Below, declared_limits
from scalebook.training.engine.rules.damping import Damping
from scalebook.training.engine.rules.update_rules import Bounded, Rule
from tests.training.engine.refusing import refused

if TYPE_CHECKING:
    from torch import Tensor


class Picky(Rule):
    def __init__(
        self, tolerance: Annotated[int, AtLeast(0)], share: "Annotated[float, Above(0), Below(1)]" = 0.5
    ) -> None:
        self.tolerance, self.share = tolerance, share


class Pickier(Picky):
    def __init__(self, tolerance: int, *, least: Annotated[int, AtLeast(2, "3, for example")] | None = None) -> None:
        super().__init__(tolerance)
        self.least = least


class Heir(Picky):
    pass


class Weighing(Damping):
    def __init__(self, weight: "Tensor | None" = None, scale: Annotated[float, Above(0)] = 1.0) -> None:
        self.weight, self.scale = weight, scale


def test_they_are_read_from_annotations() -> None:
    assert declared_limits(Picky) == {"tolerance": (AtLeast(0),), "share": (Above(0), Below(1))}
    assert declared_limits(Heir) == declared_limits(Picky)
    assert declared_limits(Pickier)["tolerance"] == ()
    assert declared_limits(Pickier)["least"] == (AtLeast(2, "3, for example"),)
    assert declared_limits(Weighing) == {"weight": (), "scale": (Above(0),)}


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (lambda: Picky(-1), "out-of-bounds rule.tolerance"),
        (lambda: Picky(tolerance=1, share=0.0), "out-of-bounds rule.share"),
        (lambda: Picky(1, 1.0), "out-of-bounds rule.share"),
        (lambda: Picky(1, float("nan")), "out-of-bounds rule.share"),
        (lambda: Heir(-2), "out-of-bounds rule.tolerance"),
        (lambda: Pickier(-3), "out-of-bounds rule.tolerance"),
        (lambda: Pickier(1, least=1), "out-of-bounds rule.least"),
        (lambda: Weighing(scale=-1.0), "out-of-bounds damping.scale"),
    ],
)
def test_a_class_refuses_what_is_outside(make: object, mistake: str) -> None:
    assert callable(make)
    with refused(mistake):
        make()


def test_what_is_within_is_as_it_was() -> None:
    made = Pickier(3, least=2)
    assert made.settings() == {"tolerance": 3, "share": 0.5, "least": 2}
    assert Pickier(0).settings()["least"] is None
    assert copy.deepcopy(Bounded(2)) == Bounded(bound=2)
    assert list(inspect.signature(Picky).parameters) == ["tolerance", "share"]
    with pytest.raises(TypeError, match="missing a required argument: 'tolerance'"):
        Picky()  # type: ignore[call-arg]  # which is the point
