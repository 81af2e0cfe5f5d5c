"""`trainer.num_nodes` of a config: its nodes, the rank of this process among them, and what the queue makes of it."""

from collections.abc import Mapping
from typing import Any

from scalebook.training.base.errors import ConfigError, Problem
from scalebook.training.base.node_rank import NODES, NodeRank, node_rank
from scalebook.training.experiments.classes import ENGINE_STRATEGIES, mapping, read_class
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.fields import quoted_value


def place_of(config: Mapping[str, Any], environment: Mapping[str, str], description: Description) -> NodeRank | None:
    """As `node_rank`, of a config that is complete and without errors."""
    trainer = mapping(config.get("trainer"))
    strategy = read_class(trainer.get("strategy"))
    info = strategy.info("strategies", description)
    own = mapping(strategy.args).get("workers") if info is not None and info.name in ENGINE_STRATEGIES else None
    devices = own if isinstance(own, int) else trainer.get("devices")
    number = devices if isinstance(devices, int) and devices > 0 else None
    rank = node_rank(environment, nodes_of(trainer), number)
    if rank is not None and info is not None and info.config_value == "auto":
        written = quoted_value(trainer.get("strategy"))
        why = f"is {written}, which needs one process, but {rank.by} started {rank.count}"
        raise ConfigError("trainer.strategy", why, "Write ddp or AsyncPS, or start one process.")
    return rank


def nodes_of(trainer: Mapping[str, Any]) -> int:
    """Nodes that the Trainer is to run on; 1 for what is no number of them."""
    nodes = trainer.get("num_nodes")
    return nodes if isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0 else 1


def over_nodes(config: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """The same run of DDP on `nodes` nodes, with an equal part of its workers on each; unchanged if `nodes` is 0, or
    the config has nodes."""
    trainer = mapping(config.get("trainer"))
    if nodes in (0, nodes_of(trainer)):
        return dict(config)
    return {**config, "trainer": {**trainer, "devices": trainer["devices"] // nodes, "num_nodes": nodes}}


def on_gpus(config: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """The same run of AsyncPS or Peers, whose workers share `gpus` GPUs."""
    trainer = mapping(config.get("trainer"))
    strategy = read_class(trainer.get("strategy"))
    args = {**mapping(strategy.args)}
    if not isinstance(args.get("workers"), Mapping):  # of a range there is one for each GPU
        args["workers"] = args.get("workers") or trainer.get("devices", 1)
    written = {"class_path": strategy.name, "init_args": args}
    return {**config, "trainer": {**trainer, "devices": gpus, "strategy": written}}


def queue_problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Problems of a config on several nodes that is to be a job of a queue with one node."""
    trainer = mapping(config.get("trainer"))
    if nodes_of(trainer) == 1 or description.clustered:
        return []
    why = f"is {nodes_of(trainer)}, but jobs of this folder run on one machine"
    remedy = (
        "Write [cluster] in scalebook.toml, as docs/how-to/cluster.md says, or start it on each node with torchrun "
        "or srun and `scalebook fit -c FILE`."
    )
    return [Problem(NODES, why, remedy)]
