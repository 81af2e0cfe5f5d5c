"""`trainer.num_nodes` of an experiment: its nodes, the rank of this process among them, and the queue."""

from collections.abc import Mapping
from typing import Any

from scalebook.training.base import ConfigError, NodeRank
from scalebook.training.base.node_rank import node_rank
from scalebook.training.experiments.classes import mapping, positive, read_class
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import quoted_value
from scalebook.training.experiments.strategies import SingleProcess


def place_of(experiment: Experiment, environment: Mapping[str, str]) -> NodeRank | None:
    """As `node_rank`, of an experiment that is complete and without errors."""
    strategy, trainer = experiment.strategy, experiment.trainer
    own = strategy.args.get("workers") if strategy.joins_engine else None
    number = positive(own if isinstance(own, int) else trainer.get("devices"))
    rank = node_rank(environment, positive(trainer.get("num_nodes")) or 1, number)
    if rank is not None and isinstance(strategy, SingleProcess):
        written = quoted_value(trainer.get("strategy"))
        why = f"is {written}, which needs one process, but {rank.by} started {rank.count}"
        raise ConfigError("trainer.strategy", why, "Write ddp or AsyncPS, or start one process.")
    return rank


def over_nodes(config: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """LightningCLI's input for the same run of DDP on `nodes` nodes, with an equal part of its workers on each;
    unchanged if `nodes` is 0, or the config has nodes."""
    trainer = mapping(config.get("trainer"))
    if nodes in (0, positive(trainer.get("num_nodes")) or 1):
        return dict(config)
    return {**config, "trainer": {**trainer, "devices": trainer["devices"] // nodes, "num_nodes": nodes}}


def on_gpus(config: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """LightningCLI's input for the same run of AsyncPS or Peers, whose workers share `gpus` GPUs."""
    trainer = mapping(config.get("trainer"))
    strategy = read_class(trainer.get("strategy"))
    args = {**mapping(strategy.args)}
    if not isinstance(args.get("workers"), Mapping):  # of a range there is one for each GPU
        args["workers"] = args.get("workers") or trainer.get("devices", 1)
    written = {"class_path": strategy.name, "init_args": args}
    return {**config, "trainer": {**trainer, "devices": gpus, "strategy": written}}
