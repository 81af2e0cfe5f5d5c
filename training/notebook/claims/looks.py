"""Looks at a claim: at which level each is judged, so that verdicts stay valid when seeds are added.

A look is a verdict on runs that were not judged before. The allowed chance of a wrong verdict is spent over all looks,
as a function of the number of seeds (Lan and DeMets 1983): FIRST of it by the first look, the rest by later ones. A
later look spends the chance that it is wrong where no earlier one was, so its level follows from the earlier ones
(Armitage, McPherson and Rowe 1969). Levels are computed for normal statistics and used for Student's t (Jennison and
Turnbull 2000, section 3.8). `python -m tests.training.notebook.claims.coverage` simulates the result.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

FIRST: Final = 0.8
"""Share of the allowed chance of a wrong verdict that the first look spends. Of the rest, a part that is inversely
proportional to the number of seeds is left for later looks."""
OTHER_RUNS: Final = 0.0
"""The growth of a look at runs that do not include those of the look before it."""
NODES: Final = 241
"""Nodes of the numerical integration; the level changes by less than 0.1 % with twice as many."""
SHORT_ID: Final = 8

Array = npt.NDArray[np.float64]
Growths = tuple[float, ...]
"""For each look after the first, its seeds divided by those of the look before, or OTHER_RUNS."""


@dataclass(frozen=True)
class JudgedCell:
    """What a look has seen of an experiment or search."""

    seeds: int
    runs: str = ""
    """The first digits of the ids of its runs, for a search those at its best points; empty if they are not known."""
    searched: bool = False
    """A search: its best points may change as seeds are added."""


@dataclass(frozen=True)
class ClaimLook:
    """A verdict on a set of runs. `cells`: by the hash of the config or search."""

    claim: str
    cells: dict[str, JudgedCell]
    when: float
    """Unix time, s."""
    spent: float = 0.0
    """The share of the allowed chance of a wrong verdict that is spent with it and the looks before."""
    verdict: str = ""
    """What it found; empty if that was not recorded."""

    @property
    def seeds(self) -> int:
        """The number of seeds of the cell that has the fewest."""
        return min(cell.seeds for cell in self.cells.values())

    def same_runs(self, other: "ClaimLook") -> bool:
        return self.cells.keys() == other.cells.keys() and not _differ(self.cells, other.cells)

    @property
    def text(self) -> str:
        """As JSON, for a tag."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @property
    def digest(self) -> str:
        """The same for the same runs."""
        content = json.dumps([self.claim, asdict(self)["cells"]], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class History:
    """The looks up to the present one. `seeds`: for each look, the number of seeds of the cell that has the fewest."""

    seeds: tuple[int, ...] = ()
    growths: Growths = ()


def history(looks: Sequence[ClaimLook], present: ClaimLook | None, cells: Sequence[str]) -> History:
    """The history up to `present`; without it, that of all looks. Only `cells` count, given by their hashes.

    A look that adds a cell and changes no other is not counted, since that cell was not judged before. Claims about the
    same search compare different points of it, so another claim's look at a search is not one of this claim.
    """
    if present is not None:
        looks = [look for look in looks if look.claim == present.claim or not _is_of_search(look)]
    chain: list[Mapping[str, JudgedCell]] = []
    growths: list[float] = []
    for look in [*sorted(looks, key=lambda look: look.when), *([] if present is None else [present])]:
        now = {hashed: cell for hashed, cell in look.cells.items() if hashed in cells}
        if not now:
            continue
        if not chain or not _differ(chain[-1], now):
            chain[-1:] = [{**(chain[-1] if chain else {}), **now}]
            continue
        same = [place for place, judged in enumerate(chain) if not _differ(judged, now)]
        if look is present and same:
            chain, growths = chain[: same[0] + 1], growths[: same[0]]
            continue
        growths.append(_growth(chain[-1], now))
        chain.append(now)
    return History(tuple(min(cell.seeds for cell in judged.values()) for judged in chain), tuple(growths))


def _is_of_search(look: ClaimLook) -> bool:
    return any(cell.searched for cell in look.cells.values())


def _differ(before: Mapping[str, JudgedCell], now: Mapping[str, JudgedCell]) -> bool:
    """Whether cells that both have are judged by other runs; runs that are not known are taken for the same."""
    pairs = [(before[hashed], cell) for hashed, cell in now.items() if hashed in before]
    return any(
        then.seeds != cell.seeds or (then.runs and cell.runs and set(then.runs.split()) != set(cell.runs.split()))
        for then, cell in pairs
    )


def _growth(before: Mapping[str, JudgedCell], now: Mapping[str, JudgedCell]) -> float:
    """The largest growth of a cell; OTHER_RUNS where a cell has lost runs."""
    pairs = [(before[hashed], cell) for hashed, cell in now.items() if hashed in before]
    for then, cell in pairs:
        has_all = {*then.runs.split()} <= {*cell.runs.split()} or not cell.runs
        if cell.seeds < then.seeds or not (has_all or (cell.searched and cell.seeds > then.seeds)):
            return OTHER_RUNS
    return max(cell.seeds / then.seeds for then, cell in pairs)


def spent(growths: Growths) -> float:
    """The share of the allowed chance of a wrong verdict that is spent after these looks."""
    seeds = 1.0
    for growth in growths:
        seeds *= growth if growth > 1 else 2.0
    return 1 - (1 - FIRST) / seeds


@lru_cache(maxsize=4096)
def level_of(alpha: float, growths: Growths = ()) -> float:
    """The two-sided level of the last look, of looks that are wrong with a chance of `alpha` together.

    A look at other runs counts as one with twice as many seeds, and as one that is wrong only where no other look is.
    """
    return _state(alpha, growths)[0]


@lru_cache(maxsize=1024)
def _state(alpha: float, growths: Growths) -> tuple[float, Array, Array]:
    """The level of the last look; the nodes and the weights of its statistic's distribution where no look was wrong."""
    if not growths or growths[-1] <= 1:
        before = spent(growths[:-1]) if growths else 0.0
        level = alpha * (spent(growths) - before)
        nodes, weights = _nodes(level)
        return level, nodes, weights * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    _, nodes, masses = _state(alpha, growths[:-1])
    goal = alpha * (spent(growths) - spent(growths[:-1]))
    level = _level(nodes, masses, growths[-1], goal)
    now, weights = _nodes(level)
    past, noise = nodes / np.sqrt(growths[-1]), np.sqrt(1 - 1 / growths[-1])
    density = np.exp(-(((now[:, None] - past[None, :]) / noise) ** 2) / 2) / (noise * np.sqrt(2 * np.pi))
    return level, now, weights * (density @ masses)


def _level(nodes: Array, masses: Array, growth: float, goal: float) -> float:
    """The two-sided level at which a look is wrong with the chance `goal`, and no earlier one was."""
    from scipy.special import ndtr

    past, noise = nodes / np.sqrt(growth), np.sqrt(1 - 1 / growth)
    low, high = 0.0, 40.0
    for _ in range(60):
        end = (low + high) / 2
        beyond = ndtr((past - end) / noise) + ndtr((-past - end) / noise)
        low, high = (end, high) if float(masses @ beyond) > goal else (low, end)
    return float(2 * ndtr(-high))


def _nodes(level: float) -> tuple[Array, Array]:
    """Places within the ends of a two-sided level, and the weights of Simpson's rule."""
    from scipy.special import ndtri

    end = float(-ndtri(level / 2))
    nodes = np.linspace(-end, end, NODES)
    weights = np.ones(NODES)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return nodes, weights * (nodes[1] - nodes[0]) / 3
