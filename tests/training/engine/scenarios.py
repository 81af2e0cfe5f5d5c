"""Every rule at every kind of speed, small, and the traces they must give.

`python -m tests.training.engine.scenarios` writes the golden traces anew; read the difference before you commit it.
"""

import json
from pathlib import Path
from typing import Final

from scalebook.training.engine.rules.damping import Damping, DropAbove, Inverse
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from tests.training.engine.virtual import Event, Fate, Speed, VirtualRun, constant, exponential

GOLDEN: Final = Path(__file__).parent / "golden"
RULES: Final[dict[str, tuple[Rule, Damping]]] = {
    "async": (Async(), Inverse()),
    "async-drop": (Async(), DropAbove(1)),
    "bounded": (Bounded(2), Inverse()),
    "sync": (Sync(), Inverse()),
    "sync-backup": (Sync(backup_workers=1), Inverse()),
    "softsync": (Softsync(2), Inverse()),
}
SPEEDS: Final[dict[str, tuple[list[Speed], list[Fate], int]]] = {  # speeds, fates, warm-up
    "constant": ([constant(1.0)] * 3, [], 0),
    "exponential": ([exponential(1.0)] * 3, [], 0),
    "straggler": ([constant(1.0), constant(1.0), constant(2.0)], [], 0),
    "dies": ([constant(1.0), constant(1.1), constant(1.2)], [Fate(1, 12)], 0),
    "returns": ([constant(1.0), constant(1.1), constant(1.2)], [Fate(2, 12, 2.5)], 0),
    "joins-late": ([constant(1.0), constant(1.1), constant(1.2)], [Fate(1, 0, 4.5)], 0),
    "warm-up": ([constant(1.0), constant(1.1), constant(1.2)], [], 2),
}
NAMES: Final = [f"{rule}-{speed}" for rule in RULES for speed in SPEEDS]


def play(name: str) -> list[Event]:
    """The trace of one scenario."""
    rule, speed = next((rule, speed) for rule in RULES for speed in SPEEDS if name == f"{rule}-{speed}")
    speeds, fates, warmup_updates = SPEEDS[speed]
    law, damping = RULES[rule]
    return VirtualRun(law, speeds, 5, damping, warmup_updates, fates, seed=7).run().trace


def golden(name: str) -> list[Event]:
    """The trace it must give."""
    return [Event(*row) for row in json.loads((GOLDEN / f"{name}.json").read_text())]


def main() -> None:
    """Write all golden traces, an event a line."""
    for name in NAMES:
        rows = ",\n".join(json.dumps(list(event)) for event in play(name))
        (GOLDEN / f"{name}.json").write_text(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    main()
