"""What a config may not ask of a parameter server, and which of its settings have no effect together."""

from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.config.class_fields import Chosen
from scalebook.training.config.classes import mapping, named
from scalebook.training.config.complete import DEFAULT_THREADS
from scalebook.training.config.description import Description
from scalebook.training.config.workload import choice, workload
from scalebook.training.errors import Problem

ARGS: Final = "trainer.strategy.init_args"
GATHERS: Final = ("sync", "softsync")
"""Rules that average several gradients into one update."""


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings of a config whose strategy is AsyncPS; none for others."""
    told = named(mapping(config.get("trainer")).get("strategy"))
    info = told.info("strategies", description)
    if info is None or info.name != "AsyncPS":
        return []
    args = {**{one.name: one.default for one in info.fields}, **mapping(told.args)}
    workers = workload(config, description).workers
    rule, damping = choice("rule", args, info), choice("damping", args, info)
    found = _refused(mapping(config.get("trainer")), workers)
    if rule and damping:
        found += _contradictions(args, rule, damping, workers)
        if rule.word == "sync" and damping.word in ("inverse", "drop_above"):
            found.append(_idle("damping", "with the rule sync every gradient is fresh", "Write none, or another rule."))
    threads = args.get("threads")
    if threads is not None and threads != (config.get("threads") or DEFAULT_THREADS):
        found.append(_error("threads", "differs from the config's own threads, which counts", "Leave this one out."))
    if workers == 1:
        alone = "there is only one worker"
        found += [_idle(name, alone, "Use more workers.") for name in ("warmup_updates", "restarts") if args.get(name)]
    return found


def _contradictions(args: Mapping[str, Any], rule: Chosen, damping: Chosen, workers: int) -> list[Problem]:
    """What the engine refuses when it starts (scalebook.training.ps.policy.settings), said before."""
    found: list[Problem] = []
    backups = rule.settings().get("backup_workers")
    if isinstance(backups, int) and backups >= workers:
        found.append(
            Problem(
                f"{ARGS}.rule.init_args.backup_workers",
                f"is {backups}, which leaves nobody to wait for among {workers} workers",
                f"Write at most {workers - 1}, or use more workers." if workers > 1 else "Use more workers.",
            )
        )
    if damping.word == "delay_compensation" and rule.word in GATHERS:
        found.append(_error("damping", f"corrects single gradients, which {rule.word} averages", "Write none."))
    if args.get("overlap") is not True:
        return found
    if args.get("host") == "inline":
        found.append(_error("overlap", "needs a server that applies meanwhile", "Write host: process, or false."))
    elif rule.word in GATHERS:
        found.append(_error("overlap", f"does not go with {rule.word}, which waits for others anyway", "Write false."))
    elif damping.word in ("delay_compensation", "drop_above") or args.get("norms") is True:
        what = "norms" if damping.word in ("none", "inverse") else damping.word
        found.append(_error("overlap", f"does not go with {what}", f"Write false, or leave {what} out."))
    return found


def _error(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGS}.{name}", why, remedy)


def _idle(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGS}.{name}", f"has no effect: {why}", remedy, "warning")


def _refused(trainer: Mapping[str, Any], workers: int) -> list[Problem]:
    """What a parameter server does not do of what the Trainer may be asked for."""
    found: list[Problem] = []
    if trainer.get("sync_batchnorm") and workers > 1:
        found.append(
            Problem(
                "trainer.sync_batchnorm",
                "needs a batch common to all workers",
                "Write false, and see batch_norm of AsyncPS; or use ddp.",
            )
        )
    if (trainer.get("num_nodes") or 1) != 1:
        found.append(Problem("trainer.num_nodes", "is not 1, but AsyncPS runs on one machine", "Write 1."))
    return found
