"""The planner's peers against published times of an iteration.

SlowMo (Wang et al. 2020, tables 1 and 2): nodes with 8 V100 each, joined by 10 Gbit/s Ethernet. Its all-reduce blocks,
as it says, so nothing of it is hidden. Nothing is fitted: computing is the published time of the one row that hides its
messages (OSGP), or that hardly has any (Local SGD, less its average of twelve steps), and that row is no cell. Devices
of a node reduce over NVLink, which is left out.

Left out: the table of AD-PSGD with a slow worker (Lian et al. 2018), which was not at hand to be read, and papers that
do not say what a gradient takes (Prague, D-PSGD). Where papers contradict each other is printed below the cells.
"""

from dataclasses import dataclass
from typing import Final

from scalebook.training.engine.rules.clock_settings import Link
from scalebook.training.engine.rules.exchanges import DPsgd, Sgp
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import Complete, OnePeerExponential
from scalebook.training.planner.all_reduce import AllReduce, WithoutServer
from scalebook.training.planner.planned_peers import PlannedPeers
from scalebook.training.planner.reliability import ComparedPlan, missing_keys, strategy_of
from scalebook.training.pricing.links import PAYLOAD, Network
from scalebook.training.pricing.profile import Profile
from tests.published.rows import Report, Row, counted

LINK: Final = Link(2e-5, PAYLOAD * 10e9 / 8)
RESNET_50: Final = 4 * 25.6e6
TRANSFORMER_BIG: Final = 4 * 213e6
"""Bytes of the parameters (Vaswani et al. 2017, table 3)."""
AVERAGES: Final = 12
"""Steps of Local SGD between two averages."""
IMAGENET_S: Final = 0.271
"""OSGP on ImageNet, whose messages travel while gradients are computed."""
WMT_LOCAL_S: Final = 0.503
"""Local SGD on WMT'16 En-De."""


@dataclass(frozen=True)
class Cell:
    """One published time of an iteration, s, on so many nodes; `nbytes`: of what is exchanged."""

    name: str
    published_s: float
    strategy: WithoutServer
    nodes: int
    nbytes: float
    gradient_s: float

    @property
    def profile(self) -> Profile:
        return Profile(self.gradient_s, 1, self.nbytes, self.nbytes, network=Network(LINK), overlap=False)

    @property
    def predicted_s(self) -> float:
        """Seconds of an iteration by a plan."""
        played = self.strategy.play(self.profile, self.nodes, self.profile.network, alone=False)
        return self.nodes / played.samples_per_s

    @property
    def row(self) -> Row:
        """In iterations a second."""
        return Row(self.name, 1 / self.published_s, 1 / self.predicted_s, "Wang et al. 2020")


_SGP: Final = PlannedPeers(Peering(Sgp(), OnePeerExponential()))
_LOCAL: Final = PlannedPeers(Peering(DPsgd(), Complete(), every=AVERAGES))


def _wmt_gradient_s() -> float:
    """What Local SGD's iteration takes without its share of an average."""
    average_s = 2 * 7 / 8 * TRANSFORMER_BIG / (PAYLOAD * 10e9 / 8)
    return WMT_LOCAL_S - average_s / AVERAGES


CELLS: Final = (
    Cell("ResNet-50, 32 nodes, all-reduce", 0.420, AllReduce(), 32, RESNET_50, IMAGENET_S),
    Cell("ResNet-50, 32 nodes, SGP", 0.304, _SGP, 32, RESNET_50, IMAGENET_S),
    Cell("ResNet-50, 32 nodes, Local SGD", 0.294, _LOCAL, 32, RESNET_50, IMAGENET_S),
    Cell("ResNet-50, 32 nodes, double averaging", 0.402, _SGP, 32, 2 * RESNET_50, IMAGENET_S),
    Cell("Transformer big, 8 nodes, all-reduce", 1.648, AllReduce(), 8, TRANSFORMER_BIG, _wmt_gradient_s()),
    Cell("Transformer big, 8 nodes, SGP", 1.225, _SGP, 8, TRANSFORMER_BIG, _wmt_gradient_s()),
)
"""Double averaging sends parameters and momentum."""
CONTRADICTIONS: Final = """\
SGP's abstract (Assran et al. 2019): 90 epochs of ImageNet by all-reduce on 32 nodes take more than 5 h. With batches of
8,192 that is 1,300 ms an iteration, where SlowMo has 420 ms on as many nodes.
AD-PSGD's abstract (Lian et al. 2018): epochs are 4 to 8 times faster than by all-reduce on a shared network. Prague's
(Luo et al. 2020): where workers are equal, all-reduce is 3.1 times faster than AD-PSGD (3.7 / 1.2)."""


def report() -> Report:
    rows = [cell.row for cell in CELLS]
    compared = [
        ComparedPlan(
            strategy_of(cell.strategy), "network", row.name, round(row.ratio, 3), None, "SlowMo",
            not missing_keys(cell.profile, cell.strategy, True, 1),
        )
        for cell, row in zip(CELLS, rows, strict=True)
    ]  # fmt: skip
    return Report([*map(str, rows), counted(rows), CONTRADICTIONS], compared=compared)
