"""Arguments that earlier versions had: each is an error that says what to write instead; none is renamed silently."""

from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.engine.rules import CODECS
from scalebook.training.experiments.classes import mapping

_OF_A_SPLIT: Final = (
    "Remove it, because one process computes the same numbers as a split model. To estimate the time of an update, "
    "use `scalebook plan --split`."
)
NOW: Final = {
    ("AsyncPS", "overlap"): "Set host: overlap instead of overlap: true, or remove overlap: false.",
    ("AsyncPS", "pull_delta"): (
        "Remove it, because the codec now decides: int8 and the sparse codecs pull differences, but bf16 and fp16 "
        "pull parameters."
    ),
    ("AsyncPS", "trace"): "Set record: updates instead of trace: true, or remove trace: false.",
    ("AsyncPS", "norms"): "Set record: drift instead of norms: true, or remove norms: false.",
    ("AsyncPS", "restarts"): "Move restarts into limits, for example `limits: {restarts: 2}`.",
    ("AsyncPS", "deadline_s"): "Move deadline_s into limits, for example `limits: {deadline_s: 60}`.",
    ("AsyncPS", "threads"): "Set threads at the top level of the config.",
    ("ModelParallel", "host"): _OF_A_SPLIT,
    ("ModelParallel", "clock"): _OF_A_SPLIT,
    ("Async", "push_every"): "Set local: {class_path: Downpour, init_args: {n_push: N}} next to the rule, where N is "
    "the value of push_every. If push_every is 1, remove it instead.",
    ("Async", "pull_every"): "Set local: {class_path: Downpour, init_args: {n_fetch: N}} next to the rule, where N is "
    "the value of pull_every. If pull_every is 1, remove it instead.",
}
"""What to write instead, by class and argument."""
WRITTEN_OUT: Final[dict[str, Any]] = {
    "overlap": False, "pull_delta": False, "trace": False, "norms": False, "restarts": 0, "deadline_s": 600.0,
}  # fmt: skip
"""The defaults that version 0.1 wrote into the config of every job of AsyncPS. They are still what happens."""


def without_written_out(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a job without the former arguments that nobody wrote: those at the default of version 0.1."""
    strategy = mapping(mapping(config.get("trainer")).get("strategy"))
    if not is_async_ps(strategy) or not isinstance(strategy.get("init_args"), Mapping):
        return dict(config)
    written: Mapping[str, Any] = strategy["init_args"]
    args = {
        name: value
        for name, value in written.items()
        if name not in WRITTEN_OUT
        or value != WRITTEN_OUT[name]
        or (name == "pull_delta" and pulls_differences(written))  # as whole parameters, which it has no more
    }
    rule = mapping(args.get("rule"))
    if _last_name(rule) == "Async" and isinstance(rule.get("init_args"), Mapping):
        own = {name: value for name, value in rule["init_args"].items() if ("Async", name) not in NOW or value != 1}
        args["rule"] = {**rule, "init_args": own}
    return {**config, "trainer": {**config["trainer"], "strategy": {**strategy, "init_args": args}}}


def is_async_ps(strategy: Mapping[str, Any]) -> bool:
    return _last_name(strategy) in ("AsyncPS", "async_ps")


def pulls_differences(args: Mapping[str, Any]) -> bool:
    """Whether AsyncPS with these arguments sends differences of parameters to its workers."""
    written = args.get("pull_codec", "fp32")
    name = _last_name(written) if isinstance(written, Mapping) else str(written).rpartition(".")[2]
    return any(not codec.whole for word, codec in CODECS.items() if name in (word, codec.__name__))


def _last_name(reference: Mapping[str, Any]) -> str:
    return str(reference.get("class_path")).rpartition(".")[2]
