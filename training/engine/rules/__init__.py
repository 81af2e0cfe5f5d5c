"""What is done with a gradient, decided without a tensor. Imports no torch, so forms and the planner use it too.

Begin with `update_rules.py` (who may go on, what is averaged), `damping.py` (what staleness costs), `codecs.py` (how
gradients travel), `local_steps.py` (when a worker communicates) and `settings.py`, which has them together;
`contradictions.py` says which do not go together.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.engine.rules import (
        argument_limits,
        clock_settings,
        contradictions,
        run_limits,
        table_conflicts,
    )
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
    )
    from scalebook.training.engine.rules.clock_settings import (
        Bandwidth,
        ClockSettings,
        Distribution,
        DistributionName,
        Link,
        Seconds,
    )
    from scalebook.training.engine.rules.codecs import (
        CODECS,
        WIDTHS,
        Bf16,
        Codec,
        CodecName,
        Fp16,
        Fp32,
        Shape,
        make_codec,
        numel,
    )
    from scalebook.training.engine.rules.contradictions import CheckedSettings
    from scalebook.training.engine.rules.damping import Damping, DampingName, NoDamping, make_damping
    from scalebook.training.engine.rules.duration_summary import DurationSummary, together
    from scalebook.training.engine.rules.exchanges import (
        EXCHANGES,
        DPsgd,
        ExchangeName,
        PeerExchange,
        Sgp,
        make_exchange,
    )
    from scalebook.training.engine.rules.facts import CodecFacts, DampingFacts, LocalFacts, RuleFacts
    from scalebook.training.engine.rules.local_steps import (
        Communication,
        Downpour,
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
        Complete,
        OnePeerExponential,
        Ring,
        Topology,
        TopologyName,
        graph_of,
        make_topology,
        second_eigenvalue,
    )
    from scalebook.training.engine.rules.update_rules import RULES, Async, Bounded, Rule, RuleName, Sync, make_rule

__all__ = [
    "CODECS", "EXCHANGES", "RULES", "TOPOLOGIES", "WIDTHS", "Above", "ArgumentError", "Async", "AtLeast", "AtMost",
    "Bandwidth", "Below", "Bf16", "Bound", "Bounded", "BySettings", "CheckedSettings", "Clip", "ClockSettings",
    "Codec", "CodecFacts", "CodecName", "Communication", "Complete", "CountOrNone", "DPsgd", "Damping",
    "DampingFacts", "DampingName", "Deal", "Distribution", "DistributionName", "Downpour", "DurationSummary",
    "Every", "ExchangeName", "Fp16", "Fp32", "HostName", "Limits", "Link", "Local", "LocalFacts", "LocalName",
    "LocalSGD", "NoDamping", "NoLocalSteps", "NonNegativeInt", "OnePeerExponential", "PeerExchange", "Peering",
    "PositiveFloat", "PositiveInt", "Ring", "Rule", "RuleFacts", "RuleName", "Seconds", "Settings", "Sgp", "Shape",
    "Significance", "Sync", "Topology", "TopologyName", "WorkerRange", "argument_limits", "clock_settings",
    "contradictions", "graph_of", "make_codec", "make_damping", "make_exchange", "make_local", "make_rule",
    "make_topology", "numel", "one_machine", "run_limits", "second_eigenvalue", "table_conflicts", "together",
]  # fmt: skip

__getattr__ = interface(__name__)
