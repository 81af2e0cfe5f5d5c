"""The planner's parts against synchronous systems whose one-device rate is published beside that of many.

A gradient is the published rate of one device. All-reduces are the planner's own closed form. Unlike
Scalebook's engine, published parameter servers send gradients while the backward pass goes on. So the time of such a
round is computed here, from the same parts (buckets, links, the last of several gradients, passes over memory), and not
offered as a plan. Systems that do not overlap are planned too; only those are in the ranges of plans.

The cells are divided in two: sorted by name, the first, third, fifth ... choose the design (the one of DESIGNS that
misses fewest of them), and the others are held out. KEPT_BACK are judged by that choice too.
"""

import math
from dataclasses import dataclass
from typing import Final

from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.planner.all_reduce import AllReduce, buckets
from scalebook.training.planner.play import play
from scalebook.training.planner.reliability import ComparedPlan
from scalebook.training.pricing.links import PAYLOAD, Network
from scalebook.training.pricing.profile import COPY_BANDWIDTH, PASSES, Profile, SharedNode, Software
from scalebook.training.pricing.reductions import largest
from tests.published.rows import Report, Row, counted, figures_of

TENSORFLOW: Final = "tensorflow/docs_src/performance/benchmarks.md, May 2017"
POSEIDON: Final = "Zhang et al. 2017 (Poseidon): the script that plots Caffe on VGG19-22K; sizes of its models' table"
HOROVOD: Final = "docs/benchmarks of Horovod; one P100 from TensorFlow's page (a DGX-1, batch 64)"
PCIE: Final = Link(1e-5, 1.2e10)
"""The link of a board in a slot of 16 lanes."""
LATENCY_S: Final = 2e-5
MEMORY_BANDWIDTH: Final = 5e10
"""Bytes per second that all cores of a socket move together; one core moves COPY_BANDWIDTH."""
FUSION_MB: Final = 64.0
"""Horovod's default."""


@dataclass(frozen=True)
class Cell:
    """One published speed-up over one device. `rate`: samples per second of one device. `nbytes`: of the parameters.
    `servers`: on how many of the nodes there is one, 0: all-reduce. `largest`: the share of the largest tensor, where
    tensors are not cut. `overlaps`: whether the system sends before the backward pass is over; `reads_early`: whether
    layers begin as soon as their own parameters are there. `software_s`: measured seconds of a round with one node
    alone."""

    name: str
    published: float
    source: str
    assumed: str
    rate: float
    batch: int
    nbytes: float
    machines: int
    devices: int
    gbits: float
    servers: int = 0
    largest: float = 0.0
    overlaps: bool = True
    reads_early: bool = False
    software_s: float = 0.0

    @property
    def workers(self) -> int:
        return self.machines * self.devices

    @property
    def link(self) -> Link:
        return Link(LATENCY_S, PAYLOAD * self.gbits * 1e9 / 8)


@dataclass(frozen=True)
class Design:
    """What is chosen: the spread of gradients on equal devices; whether transfers hide behind computing if a system
    does so; and whether a server has one core or all of a socket."""

    name: str
    cv: float
    overlap: bool
    cores: bool


DESIGNS: Final = (
    Design("spread 10 %, nothing hidden, one core serves", 0.1, False, False),
    Design("spread 10 %, hidden, all cores serve", 0.1, True, True),
    Design("spread 2 %, hidden, all cores serve", 0.02, True, True),
)


def _k80(
    name: str, published: float, rate: float, batch: int, nbytes: float, servers: int = 8, machines: int = 8
) -> Cell:
    return Cell(
        name, published / rate, TENSORFLOW, "10 Gbit/s a machine (p2.8xlarge), from memory",
        rate, batch, nbytes, machines, 8, 10, servers=servers,
    )  # fmt: skip


def _caffe(nodes: int, twenty_s: float) -> Cell:
    """A cell from the seconds of twenty iterations. One node took 18.5 s without and 34.5 s with the parameter
    server."""
    return Cell(
        f"VGG19-22K, {nodes} nodes", nodes * 18.5 / twenty_s, POSEIDON,
        "40 Gbit/s; one server a node; fc6 (25,088 x 4,096) is not cut; nothing is hidden",
        32 / (18.5 / 20), 32, 4 * 229e6, nodes, 1, 40, servers=nodes, largest=25_088 * 4096 / 229e6, overlaps=False,
        software_s=(34.5 - 18.5) / 20,
    )  # fmt: skip


def _horovod(name: str, servers: int, efficiency: float, rate: float, nbytes: float) -> Cell:
    return Cell(
        name, efficiency * 4 * servers, HOROVOD, "batch 64; GPUs of a server over PCIe",
        rate, 64, nbytes, servers, 4, 25,
    )  # fmt: skip


INCEPTION_V3, RESNET_50, RESNET_152, VGG_16, ALEXNET = (4e6 * millions for millions in (27, 25.6, 60.2, 138.4, 61))
_ON_CPU: Final = "variables in host memory; two GPUs a slot"
CELLS: Final = (
    Cell("AlexNet, 8 K80, server on the CPU", 4640 / 656, TENSORFLOW, _ON_CPU, 656, 512, ALEXNET, 1, 8, 10, servers=1,
         reads_early=True),
    _k80("Inception-v3, 16 K80", 459, 29.7, 64, INCEPTION_V3, servers=2, machines=2),
    _k80("Inception-v3, 64 K80", 1783, 29.7, 64, INCEPTION_V3, servers=6),
    _k80("ResNet-152, 64 K80", 981, 19.4, 32, RESNET_152, servers=4),
    _k80("ResNet-50, 64 K80", 2744, 52.4, 64, RESNET_50),
    _horovod("VGG-16, 512 P100", 128, 0.68, 154, VGG_16),
    Cell("VGG-16, 8 K80, server on the CPU", 234 / 35.4, TENSORFLOW, _ON_CPU, 35.4, 32, VGG_16, 1, 8, 10, servers=1,
         reads_early=True),
    _caffe(2, 36.8),
    _caffe(32, 134),
    _caffe(8, 68.5),
)  # fmt: skip
"""By name."""
KEPT_BACK: Final = (
    _k80("Inception-v3, 32 K80", 902, 29.7, 64, INCEPTION_V3, servers=4, machines=4),
    _k80("ResNet-50, 16 K80", 751, 52.4, 64, RESNET_50, servers=2, machines=2),
    _k80("ResNet-50, 32 K80", 1388, 52.4, 64, RESNET_50, servers=4, machines=4),
    _k80("ResNet-152, 16 K80", 291, 19.4, 32, RESNET_152, servers=2, machines=2),
    _k80("ResNet-152, 32 K80", 565, 19.4, 32, RESNET_152, servers=4, machines=4),
    _k80("ResNet-50, 64 K80, batch 32", 2315, 48.4, 32, RESNET_50, servers=4),
    _caffe(4, 50.3),
    _caffe(16, 105),
    _horovod("VGG-16, 128 P100", 32, 0.79, 154, VGG_16),
    _horovod("Inception-v3, 512 P100", 128, 0.90, 142, INCEPTION_V3),
)


def is_chosen_with(cell: Cell) -> bool:
    """Whether the cell takes part in choosing the design: every other one of CELLS, by name."""
    return cell in sorted(CELLS, key=lambda one: one.name)[::2]


def speedup(cell: Cell, design: Design) -> float:
    """Speed-up of all devices over one."""
    alone_s = cell.batch / cell.rate
    profile = Profile(Distribution("lognormal", alone_s, design.cv), cell.batch, cell.nbytes, cell.nbytes)
    if cell.servers:
        return cell.workers * alone_s / _round_s(cell, design, profile)
    node = SharedNode(cell.devices, PCIE)
    reducing = Profile(**{**vars(profile), "node": node, "overlap": design.overlap and cell.overlaps})
    point = AllReduce(bucket_mb=FUSION_MB).play(reducing, cell.workers, Network(cell.link), alone=False)
    return point.samples_per_s / cell.rate


def planned(cell: Cell, design: Design) -> float | None:
    """The speed-up by a plan; None for systems that send before the backward pass is over, since Scalebook's parameter
    servers under `sync` do not. A round of one node alone is the copying of its software."""
    if not cell.servers:
        return speedup(cell, design)
    if cell.overlaps:
        return None
    profile = Profile(
        Distribution("lognormal", cell.batch / cell.rate, design.cv), cell.batch, cell.nbytes, cell.nbytes,
        network=Network(cell.link), server_machines="workers", shard_shares={cell.servers: cell.largest},
        software=Software(bandwidth=2 * cell.nbytes / cell.software_s),
    )  # fmt: skip
    return play(profile, cell.workers, Sync(), cell.servers).samples_per_s / cell.rate


def _round_s(cell: Cell, design: Design, profile: Profile) -> float:
    """Seconds of a round of parameter servers on the workers' nodes: all push, the servers sum and step, all pull.

    The devices of a node sum their gradients before the node pushes once. Each way the busiest link is that of the node
    with the largest share: all others' pushes come in, all others' pulls go out.
    """
    last_s = largest(profile.gradient_s, cell.workers)
    share = max(cell.largest, 1 / cell.servers)
    between_s = (cell.machines - 1) * share * cell.nbytes / _bandwidth(cell.link) if cell.machines > 1 else 0.0
    within_s = min(2, cell.devices) * cell.nbytes / _bandwidth(PCIE)
    pushes = cell.devices if cell.machines == 1 else cell.machines
    bandwidth = MEMORY_BANDWIDTH if design.cores else COPY_BANDWIDTH
    serve_s = PASSES * pushes * share * cell.nbytes / bandwidth
    if cell.software_s:  # one machine alone pushes, serves and pulls within it
        within_s, serve_s = cell.software_s / 2, 0.0
    way_s = max(between_s, within_s) if cell.overlaps else between_s + within_s
    hides = design.overlap and cell.overlaps
    free_s = 0.0
    for ready, nbytes in buckets(profile, FUSION_MB):
        part = nbytes / cell.nbytes
        free_s = max(free_s, (ready if hides else 1.0) * last_s) + part * max(way_s, serve_s if hides else 0.0)
    free_s = max(free_s, last_s) + (0.0 if hides else serve_s)
    early_s = last_s / 3 if hides and cell.reads_early else 0.0  # of the forward pass
    return free_s + max(0.0, way_s - early_s)


def _bandwidth(link: Link) -> float:
    assert isinstance(link.bandwidth, float)
    return link.bandwidth


def misses(design: Design) -> float:
    """Error on the cells that choose the design: the mean of |log(predicted / published)|."""
    chosen = [cell for cell in CELLS if is_chosen_with(cell)]
    return sum(abs(math.log(speedup(cell, design) / cell.published)) for cell in chosen) / len(chosen)


def predicted(design: Design) -> list[Row]:
    """Predictions for all cells."""
    rows = []
    for cell in (*CELLS, *KEPT_BACK):
        part = "kept back" if cell in KEPT_BACK else "chosen with" if is_chosen_with(cell) else "held out"
        rows.append(Row(cell.name, cell.published, speedup(cell, design), cell.source, cell.assumed, part))
    return rows


def report() -> Report:
    lines = [f"{design.name}: off by {math.exp(misses(design)) - 1:.0%} on the half that chooses" for design in DESIGNS]
    design = min(DESIGNS, key=misses)
    rows = predicted(design)
    lines += [f"{design.name}:", *map(str, rows)]
    lines += [
        f"{part}, {counted([row for row in rows if row.part == part])}"
        for part in dict.fromkeys(row.part for row in rows)
    ]
    compared = [
        ComparedPlan("sync" if cell.servers else "ddp", "network", cell.name, round(made / cell.published, 3))
        for cell in (*CELLS, *KEPT_BACK)
        if (made := planned(cell, design)) is not None
    ]
    return Report(lines, {"design": design.name, "rows": figures_of(rows)}, compared)
