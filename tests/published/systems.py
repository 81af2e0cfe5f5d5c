"""Plans of synchronous systems whose one-device rate is published besides that of many devices.

Each cell is planned as a person would plan it with `scalebook plan --profile`: the gradient's time is the published
rate of one device, with the published sizes, links and machines. Nothing is fitted. Parameter servers are `sync`, with
a machine as a worker and eight cores to serve; all-reduces are `ddp`, with several workers on a node. Where a source
also says what a complete profile has (`scalebook.training.planner.reliability.missing_keys`), the cell is planned
twice: with it, and without it.

Most of these parameter servers send while the backward pass goes on. Scalebook's `sync` does not, so plans for them are
often too slow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from scalebook.training.engine.rules.clock_settings import Link
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.planner.all_reduce import AllReduce
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.question import Question
from scalebook.training.planner.reliability import ComparedPlan, missing_keys
from scalebook.training.pricing.links import OWN, PAYLOAD, Network
from scalebook.training.pricing.profile import COPY_BANDWIDTH, PASSES, Profile, SharedNode, Software
from tests.published.rows import Report, Row, counted, figures_of

TENSORFLOW: Final = "tensorflow/docs_src/performance/benchmarks.md, May 2017"
POSEIDON: Final = "Zhang et al. 2017 (Poseidon): the script that plots Caffe on VGG19-22K; sizes of its models' table"
HOROVOD: Final = "docs/benchmarks of Horovod; one P100 from TensorFlow's page (a DGX-1, batch 64)"
MXNET: Final = "apache/mxnet, example/image-classification/README.md"
DLPERF: Final = "Oneflow-Inc/DLPerf, reports/dlperf_benchmark_test_report_v1.md"
AWS: Final = "aws-samples/deep-learning-models, issue 2"
LATENCY_S: Final = 2e-5
SERVING: Final = 8
"""Cores of a machine that serves; none of the sources says how many."""
PCIE: Final = Link(1e-5, 1.2e10)
"""The link of a board in a slot of 16 lanes."""
NVLINK: Final = Link(2e-6, 1.5e11)
"""That of a V100, all lanes together, each way."""
FUSION_MB: Final = 64.0
"""Horovod's default."""


@dataclass(frozen=True)
class Cell:
    """One published speed-up over one device. `system`: cells of one system are left out together. `rate`: samples per
    second of one device; `nbytes`: of the parameters; `servers`: how many machines serve, 0: all-reduce.

    A complete profile has `software` and `largest`, the share of the largest shard, for servers; for an all-reduce
    `slowdown`, the factor by which a gradient takes longer if all devices of a machine compute one."""

    name: str
    system: str
    published: float
    source: str
    assumed: str
    rate: float
    batch: int
    nbytes: float
    machines: int
    devices: int
    link: Link
    servers: int = 0
    software: Software | None = None
    largest: float = 0.0
    slowdown: float = 0.0
    within: Link = PCIE
    bucket_mb: float = FUSION_MB
    one_machine: bool = False
    """Each device is a worker, and the processor of their machine serves."""

    @property
    def complete(self) -> Profile:
        """The profile with all that is published."""
        gradient_s = self.batch / self.rate
        if not self.servers:
            return Profile(
                gradient_s, self.batch, self.nbytes, self.nbytes, network=Network(self.link),
                node=SharedNode(self.devices, self.within),
                slowdown={self.devices: self.slowdown} if self.slowdown else {},
            )  # fmt: skip
        samples = self.batch * (1 if self.one_machine else self.devices)
        common = self.link.bandwidth
        assert isinstance(common, float)
        return Profile(
            gradient_s, samples, self.nbytes, self.nbytes, PASSES * self.nbytes / COPY_BANDWIDTH,
            network=Network(self.link, Link(0.0, common * self.devices) if self.one_machine else Link()),
            server_machines="one" if self.one_machine else "workers", server_cores=SERVING, software=self.software,
            shard_shares={self.servers: self.largest} if self.largest else {},
        )  # fmt: skip

    @property
    def profiles(self) -> Iterator[Profile]:
        """The complete one, and the same without what many sources do not say."""
        yield self.complete
        if self.software is not None or self.slowdown:
            yield replace(self.complete, software=None, shard_shares={}, slowdown={})

    @property
    def workers(self) -> int:
        return self.machines if self.servers and not self.one_machine else self.machines * self.devices

    def setting(self, profile: Profile) -> Setting:
        rule = Sync() if self.servers else AllReduce(bucket_mb=self.bucket_mb)
        shards = self.servers or 1
        return Setting.of(profile, Question(rules=[rule], shards=[shards]), rule, shards, OWN)

    def speedup(self, profile: Profile) -> float:
        """Of all devices over one, as planned."""
        return self.setting(profile).play(self.workers).samples_per_s / self.rate


def _ethernet(gigabits: float) -> Link:
    return Link(LATENCY_S, PAYLOAD * gigabits * 1e9 / 8)


def _k80(name: str, published: float, rate: float, batch: int, nbytes: float, servers: int, machines: int) -> Cell:
    return Cell(
        name, "TensorFlow on K80", published / rate, TENSORFLOW, "10 Gbit/s a machine (p2.8xlarge), from memory",
        rate, batch, nbytes, machines, 8, _ethernet(10), servers,
    )  # fmt: skip


def _on_cpu(name: str, published: float, rate: float, batch: int, nbytes: float) -> Cell:
    return Cell(
        name, "TensorFlow, server on the CPU", published / rate, TENSORFLOW,
        "two GPUs a slot; a shard for each of 8 cores", rate, batch, nbytes, 1, 8, Link(1e-5, 6e9), SERVING,
        one_machine=True,
    )  # fmt: skip


ALONE_S: Final = 18.5
"""Seconds of twenty iterations of Caffe on one node, without a parameter server."""
VGG19_22K: Final = 4 * 229e6
COPYING: Final = Software(bandwidth=2 * VGG19_22K / ((34.5 - ALONE_S) / 20))
"""What a round of one node with its own server (34.5 s for twenty) takes longer is copying, there and back."""


def _caffe(nodes: int, twenty_s: float) -> Cell:
    return Cell(
        f"Caffe and servers, {nodes} nodes", "Caffe", nodes * ALONE_S / twenty_s, POSEIDON,
        "40 Gbit/s; one server a node; fc6 (25,088 x 4,096) is not cut",
        32 / (ALONE_S / 20), 32, VGG19_22K, nodes, 1, _ethernet(40), nodes, COPYING, 25_088 * 4096 / 229e6,
    )  # fmt: skip


def _wfbp(nodes: int, twenty_s: float) -> Cell:
    """One node took 19.4 s with its parameter server, so software is known. Still there is no complete profile: no key
    says that servers get gradients while the backward pass goes on."""
    return Cell(
        f"Caffe, sending while it computes, {nodes} nodes", "Caffe, sending while it computes",
        nodes * ALONE_S / twenty_s, POSEIDON, "40 Gbit/s; one server a node; parameters are cut evenly",
        32 / (ALONE_S / 20), 32, VGG19_22K, nodes, 1, _ethernet(40), nodes,
    )  # fmt: skip


def _mxnet(model: str, batch: int, nbytes: float, rate: float, rates: tuple[float, ...]) -> list[Cell]:
    return [
        Cell(
            f"MXNet, {model}, {16 * machines} K80", "MXNet", published / rate, MXNET,
            "20 Gbit/s a machine (p2.16xlarge)", rate, batch, nbytes, machines, 16, _ethernet(20), machines,
        )
        for machines, published in zip((2, 4, 8, 16), rates, strict=True)
    ]  # fmt: skip


def _horovod(name: str, servers: int, efficiency: float, rate: float, nbytes: float) -> Cell:
    return Cell(
        name, "Horovod on P100", efficiency * 4 * servers, HOROVOD, "batch 64; GPUs of a server over PCIe",
        rate, 64, nbytes, servers, 4, _ethernet(25),
    )  # fmt: skip


def _dlperf(framework: str, model: str, batch: int, nbytes: float, rates: tuple[float, ...]) -> list[Cell]:
    """`rates`: of 1, 8, 16 and 32 devices. Of one machine only the slowdown is used."""
    one, eight, *more = rates
    bucket_mb = 25.0 if framework == "PyTorch" else FUSION_MB
    return [
        Cell(
            f"{framework}, {model}, {8 * machines} V100", f"{framework} of DLPerf", published / one, DLPERF,
            "buckets of 64 MB (PyTorch: 25)", one, batch, nbytes, machines, 8, _ethernet(100), within=NVLINK,
            slowdown=max(1.0, 8 * one / eight), bucket_mb=bucket_mb,
        )
        for machines, published in zip((2, 4), more, strict=True)
    ]  # fmt: skip


def _aws(machines: int, published: float) -> Cell:
    return Cell(
        f"ResNet-50, {8 * machines} V100 of AWS", "Horovod on AWS", published / 740, AWS,
        "batch 256; 25 Gbit/s a machine (p3.16xlarge); gradients of 4 bytes", 740, 256, RESNET_50, machines, 8,
        _ethernet(25), slowdown=8 * 740 / 5000, within=NVLINK,
    )  # fmt: skip


INCEPTION_V3, RESNET_50, RESNET_152, VGG_16, ALEXNET, BERT = (
    4e6 * millions for millions in (27, 25.6, 60.2, 138.4, 61, 110)
)
CELLS: Final = (
    _k80("Inception-v3, 16 K80", 459, 29.7, 64, INCEPTION_V3, 2, 2),
    _k80("Inception-v3, 32 K80", 902, 29.7, 64, INCEPTION_V3, 4, 4),
    _k80("Inception-v3, 64 K80", 1783, 29.7, 64, INCEPTION_V3, 6, 8),
    _k80("ResNet-50, 16 K80", 751, 52.4, 64, RESNET_50, 2, 2),
    _k80("ResNet-50, 32 K80", 1388, 52.4, 64, RESNET_50, 4, 4),
    _k80("ResNet-50, 64 K80", 2744, 52.4, 64, RESNET_50, 8, 8),
    _k80("ResNet-50, 64 K80, batch 32", 2315, 48.4, 32, RESNET_50, 4, 8),
    _k80("ResNet-152, 16 K80", 291, 19.4, 32, RESNET_152, 2, 2),
    _k80("ResNet-152, 32 K80", 565, 19.4, 32, RESNET_152, 4, 4),
    _k80("ResNet-152, 64 K80", 981, 19.4, 32, RESNET_152, 4, 8),
    _on_cpu("AlexNet, 8 K80, server on the CPU", 4640, 656, 512, ALEXNET),
    _on_cpu("VGG-16, 8 K80, server on the CPU", 234, 35.4, 32, VGG_16),
    *(_caffe(nodes, s) for nodes, s in {2: 36.8, 4: 50.3, 8: 68.5, 16: 105, 32: 134}.items()),
    *(_wfbp(nodes, s) for nodes, s in {2: 20.8, 4: 22.58, 8: 24.2, 16: 25.6, 32: 27.7}.items()),
    *_mxnet("AlexNet", 512, 203e6, 457.07, (7945.57, 15840.52, 31334.88, 61938.36)),
    *_mxnet("Inception-v3", 32, 95e6, 30.4, (882.57, 1761.24, 3416.2, 6660.98)),
    *_mxnet("ResNet-152", 32, 240e6, 20.08, (595.53, 1179.86, 2333.47, 4630.42)),
    Cell("Inception-v3, 32 Titan X", "TensorFlow on Titan X", 20, POSEIDON,
         "40 Gbit/s; one server a node; 43.2 samples/s of one node, from memory of the paper",
         43.2, 32, INCEPTION_V3, 32, 1, _ethernet(40), 32),
    _horovod("VGG-16, 128 P100", 32, 0.79, 154, VGG_16),
    _horovod("VGG-16, 512 P100", 128, 0.68, 154, VGG_16),
    _horovod("Inception-v3, 128 P100", 32, 0.90, 142, INCEPTION_V3),
    _horovod("Inception-v3, 512 P100", 128, 0.90, 142, INCEPTION_V3),
    *_dlperf("OneFlow", "ResNet-50", 128, RESNET_50, (384.85, 2969.45, 5906.55, 11711.18)),
    *_dlperf("OneFlow", "BERT", 32, BERT, (145.21, 1042.98, 1890.26, 3715.08)),
    *_dlperf("TensorFlow 1", "ResNet-50", 128, RESNET_50, (362.44, 2721.98, 5099.42, 9514.64)),
    *_dlperf("TensorFlow 1", "BERT", 32, BERT, (106.80, 806.56, 1090.20, 1923.68)),
    *_dlperf("MXNet", "ResNet-50", 96, RESNET_50, (389.71, 2947.72, 5684.68, 10419.21)),
    *_dlperf("MXNet", "BERT", 32, BERT, (127.05, 928.03, 1136.44, 1895.50)),
    *_dlperf("PyTorch", "ResNet-50", 128, RESNET_50, (354.40, 2719.07, 5307.21, 10632.33)),
    *_dlperf("PaddlePaddle", "ResNet-50", 128, RESNET_50, (352.72, 2625.38, 4895.27, 9348.17)),
    *_dlperf("PaddlePaddle", "BERT", 32, BERT, (132.64, 615.12, 1116.02, 2073.60)),
    *_dlperf("TensorFlow 2", "ResNet-50", 128, RESNET_50, (321.80, 2458.74, 4849.68, 9418.44)),
    _aws(2, 9860), _aws(4, 21_300), _aws(8, 37_000),
)  # fmt: skip


def report() -> Report:
    rows, compared = list[Row](), list[ComparedPlan]()
    for cell in CELLS:
        for profile in cell.profiles:
            setting = cell.setting(profile)
            lacks = missing_keys(profile, setting.rule, setting.network == OWN, setting.shards)
            row = Row(cell.name, cell.published, cell.speedup(profile), cell.source, cell.assumed, words(lacks))
            rows.append(row)
            strategy = "sync" if cell.servers else "ddp"
            compared.append(
                ComparedPlan(strategy, "network", cell.name, round(row.ratio, 3), None, cell.system, not lacks)  # type: ignore[arg-type]  # one of both
            )
    lines = [*map(str, rows), *(f"{part}, {counted([row for row in rows if row.part == part])}" for part in PARTS)]
    return Report(lines, {"rows": figures_of(rows)}, compared)


PARTS: Final = ("complete", "incomplete")


def words(lacks: list[str]) -> str:
    return PARTS[bool(lacks)]
