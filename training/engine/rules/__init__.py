"""What is done with a gradient, decided without a tensor. Imports no torch, so forms and the planner use it too.

Begin with `update_rules.py` (who may go on, what is averaged), `damping.py` (what staleness costs), `codecs.py` (how
gradients travel), `local_steps.py` (when a worker communicates) and `settings.py`, which has them together;
`contradictions.py` says which do not go together.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.engine.rules import run_limits, table_conflicts
    from scalebook.training.engine.rules.argument_error import ArgumentError
    from scalebook.training.engine.rules.argument_limits import (
        Above,
        AtLeast,
        AtMost,
        Below,
        Bound,
        BySettings,
        CountOrNone,
        NonNegativeInt,
        PositiveFloat,
        PositiveInt,
        check_limits,
        declared_limits,
    )
    from scalebook.training.engine.rules.clock_settings import (
        RECORDED,
        Bandwidth,
        ClockSettings,
        Death,
        Distribution,
        DistributionName,
        Link,
        MachineGroup,
        Seconds,
        made_clock,
        read_clock,
    )
    from scalebook.training.engine.rules.codecs import (
        CODECS,
        WIDTHS,
        Bf16,
        Codec,
        CodecName,
        Fp16,
        Fp32,
        Int8,
        Part,
        PowerSgd,
        Qsgd,
        RandomK,
        Shape,
        Sign,
        TopK,
        make_codec,
        numel,
    )
    from scalebook.training.engine.rules.contradictions import (
        CheckedSettings,
        find_contradictions,
        nobody_left,
        unfit_for_nodes,
    )
    from scalebook.training.engine.rules.damping import (
        Damping,
        DampingName,
        DelayCompensation,
        DropAbove,
        Inverse,
        NoDamping,
        make_damping,
    )
    from scalebook.training.engine.rules.duration_summary import DurationSummary, together
    from scalebook.training.engine.rules.exchanges import (
        EXCHANGES,
        AdPsgd,
        DPsgd,
        ExchangeName,
        Gossip,
        PeerExchange,
        Sgp,
        make_exchange,
    )
    from scalebook.training.engine.rules.facts import CodecFacts, DampingFacts, LocalFacts, RuleFacts
    from scalebook.training.engine.rules.local_steps import (
        Communication,
        DiLoCo,
        Downpour,
        Elastic,
        Every,
        Local,
        LocalName,
        LocalSGD,
        NoLocalSteps,
        Significance,
        make_local,
    )
    from scalebook.training.engine.rules.peering import Peering, one_machine
    from scalebook.training.engine.rules.run_limits import Limits, WorkerRange
    from scalebook.training.engine.rules.settings import Clip, Deal, HostName, Settings
    from scalebook.training.engine.rules.topologies import (
        TOPOLOGIES,
        Bipartite,
        Complete,
        Exponential,
        OnePeerExponential,
        Ring,
        Topology,
        TopologyName,
        Torus,
        graph_of,
        make_topology,
        second_eigenvalue,
    )
    from scalebook.training.engine.rules.update_rules import (
        RULES,
        Arrival,
        Async,
        Bounded,
        Rule,
        RuleName,
        Softsync,
        Sync,
        View,
        make_rule,
    )

__all__ = [
    "CODECS", "EXCHANGES", "RECORDED", "RULES", "TOPOLOGIES", "WIDTHS", "Above", "AdPsgd", "ArgumentError", "Arrival",
    "Async", "AtLeast", "AtMost", "Bandwidth", "Below", "Bf16", "Bipartite", "Bound", "Bounded", "BySettings",
    "CheckedSettings", "Clip", "ClockSettings", "Codec", "CodecFacts", "CodecName", "Communication", "Complete",
    "CountOrNone", "DPsgd", "Damping", "DampingFacts", "DampingName", "Deal", "Death", "DelayCompensation", "DiLoCo",
    "Distribution", "DistributionName", "Downpour", "DropAbove", "DurationSummary", "Elastic", "Every", "ExchangeName",
    "Exponential", "Fp16", "Fp32", "Gossip", "HostName", "Int8", "Inverse", "Limits", "Link", "Local", "LocalFacts",
    "LocalName", "LocalSGD", "MachineGroup", "NoDamping", "NoLocalSteps", "NonNegativeInt", "OnePeerExponential",
    "Part", "PeerExchange", "Peering", "PositiveFloat", "PositiveInt", "PowerSgd", "Qsgd", "RandomK", "Ring", "Rule",
    "RuleFacts", "RuleName", "Seconds", "Settings", "Sgp", "Shape", "Sign", "Significance", "Softsync", "Sync", "TopK",
    "Topology", "TopologyName", "Torus", "View", "WorkerRange", "check_limits", "declared_limits",
    "find_contradictions", "graph_of", "made_clock", "make_codec", "make_damping", "make_exchange", "make_local",
    "make_rule", "make_topology", "nobody_left", "numel", "one_machine", "read_clock", "run_limits",
    "second_eigenvalue", "table_conflicts", "together", "unfit_for_nodes",
]  # fmt: skip

__getattr__ = interface(__name__)
