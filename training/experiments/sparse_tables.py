"""What a config may not ask for if its model has sparse tables, and which optimizers do not fit the model's parameters.

Checked once the model's parameters are known (`model_parameters`), which a form looks up as soon as something `asks`
for it; the run's own process looks before it starts anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scalebook.training.base.errors import Problem
from scalebook.training.engine.rules.contradictions import ARGUMENTS, Contradiction
from scalebook.training.engine.rules.facts import LocalFacts
from scalebook.training.engine.rules.table_conflicts import (
    SPARSE_ALONE,
    Unfit,
    settings_beside_tables,
    unfit_for_dense,
    unfit_for_rows,
)
from scalebook.training.experiments.classes import ENGINE_STRATEGIES, mapping, read_class
from scalebook.training.experiments.codec_problems import codecs_of
from scalebook.training.experiments.completion import complete
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.model_parameters import ModelParameter, cached_parameters, find_out
from scalebook.training.experiments.workload import choice

TORCHS: Final = "torch.optim."


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """The errors, if the model is known; else none."""
    is_server = _is_server(config, description)
    if not is_server and not asks(config, description):
        return []
    model = cached_parameters(config, description)
    if model is None:
        return []
    findings = []
    if is_server and any(one.sparse for one in model.parameters):
        findings = [Problem(f"{ARGUMENTS}.{one.key}", *one[1:]) for one in _forbidden(config, description)]
    if (optimizer := _optimizer(config, description)) is not None:
        why = unfit(model.parameters, *optimizer, is_server)
        findings += [Problem("optimizer", *why)] if why else []
    return findings


def unfit(
    parameters: Sequence[ModelParameter], name: str, settings: Mapping[str, Any], is_server: bool
) -> Unfit | None:
    """Why torch's optimizer of this name cannot train a model with these parameters, as far as is known."""
    trained = [parameter for parameter in parameters if parameter.trained]
    has_tables = any(parameter.sparse for parameter in trained)
    why = unfit_for_dense(name, [parameter.name for parameter in trained if not parameter.sparse], has_tables)
    return why or (unfit_for_rows(name, settings) if has_tables and is_server else None)


def asks(config: Mapping[str, Any], description: Description) -> bool:
    """Whether the validity of the config depends on the model's parameters."""
    optimizer = _optimizer(config, description)
    is_sparse_alone = optimizer is not None and optimizer[0] == SPARSE_ALONE
    return is_sparse_alone or (_is_server(config, description) and bool(_forbidden(config, description)))


def inspect_model(config: Mapping[str, Any], description: Description) -> bool:
    """Find out the model's parameters, some 6 s, if something asks for them, or a codec does, and they are unknown;
    returns whether it did."""
    has_codec = any(codec.codes for codec in codecs_of(config, description).values())
    if not (has_codec or asks(config, description)) or cached_parameters(config, description) is not None:
        return False
    find_out(config, description)
    return True


def _is_server(config: Mapping[str, Any], description: Description) -> bool:
    info = read_class(mapping(config.get("trainer")).get("strategy")).info("strategies", description)
    return info is not None and info.name in ENGINE_STRATEGIES


def _forbidden(config: Mapping[str, Any], description: Description) -> list[Contradiction]:
    """What tables would forbid of AsyncPS's arguments."""
    strategy = read_class(mapping(config.get("trainer")).get("strategy"))
    args, info = mapping(strategy.args), strategy.info("strategies", description)
    local, damping = (choice(name, args, info) for name in ("local", "damping"))
    facts = (local.info.local if local else None) or LocalFacts("none")
    if choice("exchange", args, info) is not None:
        return settings_beside_tables("peers", {}, keeps_squares=False)
    adaptive = damping is not None and damping.settings().get("adaptive") is True
    codes = {name: codec.name for name, codec in codecs_of(config, description).items() if codec.codes}
    return settings_beside_tables(local.word if local and (facts.steps or facts.sums) else None, codes, adaptive)


def _optimizer(config: Mapping[str, Any], description: Description) -> tuple[str, Mapping[str, Any]] | None:
    """Name and settings of the one that is used, as torch calls it; None where the model has its own."""
    reference = read_class(complete(config, description).get("optimizer"))
    info = reference.info("optimizers", description)
    if info is None:
        return None
    name = info.name if info.class_path.startswith(TORCHS) else info.class_path
    return name, mapping(reference.args)
