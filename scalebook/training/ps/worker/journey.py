"""Where a push is, so that one under way can be kept and gone on with."""

from dataclasses import dataclass
from enum import Enum

from torch import Tensor

from scalebook.training.ps.coordination.admission import Verdict
from scalebook.training.ps.optimizer.hyper import Groups


class Leg(Enum):
    """Where a client is: it is about to set out, or looks at the newest parameters before (local steps); its push
    travels, the rule has not let it begin yet, it need not wait, the parameters travel."""

    ASKS = "asks"
    LOOKS = "looks"
    UP = "up"
    TURN = "turn"
    HERE = "here"
    DOWN = "down"


@dataclass
class Journey:
    """A push from beginning to end. `gradients`: as they are handed in, clipped and summed; `usable`: whether this
    worker's own last gradient is. `started`, `waited`: seconds on the run's clock when it began, and waited until
    then. `was_sent`: whether it sets out at all, or is only added to what will."""

    gradients: list[Tensor | None]
    groups: Groups
    valid: bool
    usable: bool
    started: float
    waited: float
    was_sent: bool = True
    verdict: Verdict = Verdict.ADMIT
    staleness: int = 0
