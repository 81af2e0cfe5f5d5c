"""What a config may not ask of a parameter server, and which of its settings have no effect together."""

from collections.abc import Mapping
from typing import Any, Final

from training.spec.classes import mapping, named
from training.spec.description import Description
from training.spec.errors import Problem
from training.spec.workload import choice, workload

ARGS: Final = "trainer.strategy.init_args"


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings of a config whose strategy is AsyncPS; none for others."""
    told = named(mapping(config.get("trainer")).get("strategy"))
    info = told.info("strategies", description)
    if info is None or info.name != "AsyncPS":
        return []
    args = {**{one.name: one.default for one in info.fields}, **mapping(told.args)}
    workers = workload(config, description).workers
    rule, damping = choice("rule", args, info), choice("damping", args, info)
    found = _refused(mapping(config.get("trainer")), config, description)
    backups = rule.settings().get("backup_workers") if rule else None
    if isinstance(backups, int) and backups >= workers:
        found.append(
            Problem(
                f"{ARGS}.rule.init_args.backup_workers",
                f"is {backups}, which leaves nobody to wait for among {workers} workers",
                f"Write at most {workers - 1}, or use more workers." if workers > 1 else "Use more workers.",
            )
        )
    if rule and damping and rule.word == "sync" and damping.word != "none":
        found.append(_idle("damping", "with the rule sync every gradient is fresh", "Write none, or another rule."))
    if args.get("overlap") is True and args.get("host") == "inline":
        found.append(_idle("overlap", "with the host inline the worker itself applies", "Write host: process."))
    if workers == 1:
        alone = "there is only one worker"
        found += [_idle(name, alone, "Use more workers.") for name in ("warmup_updates", "restarts") if args.get(name)]
    return found


def _idle(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGS}.{name}", f"has no effect: {why}", remedy, "warning")


def _refused(trainer: Mapping[str, Any], config: Mapping[str, Any], description: Description) -> list[Problem]:
    """What workers cannot do that do not wait for each other."""
    found: list[Problem] = []
    if trainer.get("precision") == "16-mixed":
        found.append(
            Problem("trainer.precision", "scales losses, which AsyncPS does not", "Write bf16-mixed or 32-true.")
        )
    if trainer.get("sync_batchnorm"):
        found.append(
            Problem("trainer.sync_batchnorm", "needs a batch common to all workers", "Write false, or use ddp.")
        )
    if (trainer.get("num_nodes") or 1) != 1:
        found.append(Problem("trainer.num_nodes", "is not 1, but AsyncPS runs on one machine", "Write 1."))
    scheduler = named(config.get("lr_scheduler")).info("lr_schedulers", description)
    if scheduler is not None and scheduler.name == "ReduceLROnPlateau":
        found.append(
            Problem(
                "lr_scheduler", "follows the validation, which only worker 0 does", "Use another scheduler, or ddp."
            )
        )
    return found
