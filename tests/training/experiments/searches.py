"""Searches for the tests: one by hand with everything in it, and generated ones."""

from typing import Any

from hypothesis import strategies as st

from scalebook.training.base.errors import Problem
from scalebook.training.base.files import yaml
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.search.definition import search_problems

NO_CLASSES = Description([], [], [], [], [], [], {})
"""For experiments whose classes do not matter."""
CONFIG: dict[str, Any] = {
    "model": "MLPClassifier",
    "data": {"class_path": "Digits", "init_args": {"batch_size": 16}},
    "trainer": {"strategy": "auto", "max_epochs": 3},
    "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
}
WHOLE = """
preset: batch-size
objective: [val/loss, seconds]
target: 0.3
scaling: strong
space:
  batch_size: {powers_of_two: [16, 1024]}
  learning_rate: {log_uniform: [0.001, 1.0], per: 256, rule: linear, warmup_epochs: 1}
  workers: {values: [1, 2]}
  strategy: {values: [single, ddp, async]}
  model.init_args.hidden: {int: [16, 256], log: true}
sampler: {tpe: {seed: 3}}
pruner: none
trials: 100
seeds: 2
minutes: 30
seconds_per_trial: 20
exclusive: true
failures: 5
memory_mb: 500
points: [{batch_size: 64, learning_rate: 0.1, model.init_args.hidden: 32}]
storage: postgresql://somebody@localhost/studies
"""

_positive = st.floats(1e-6, 1e3, allow_nan=False)
_pairs = st.tuples(_positive, _positive).map(sorted)
_whole = st.tuples(st.integers(1, 300), st.integers(1, 300)).map(sorted)
_powers = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(lambda ends: [2**one for one in sorted(ends)])
_points = st.none() | st.integers(2, 9)


def _said(**told: Any) -> dict[str, Any]:
    return {key: value for key, value in told.items() if value not in (None, False)}


ranges: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda ends, points: _said(uniform=ends, points=points), _pairs, _points),
    st.builds(lambda ends, points: _said(log_uniform=ends, points=points), _pairs, _points),
    st.builds(lambda ends, log: _said(int=ends, log=log), _whole, st.booleans()),
    st.builds(lambda ends, step, points: _said(int=ends, step=step, points=points), _whole, st.integers(1, 9), _points),
    st.builds(lambda ends: {"powers_of_two": ends}, _powers),
    st.lists(st.integers(-50, 50) | _positive, min_size=1, max_size=5, unique=True).map(lambda told: {"grid": told}),
    st.lists(
        st.text("abc xyz:#{}", max_size=4) | st.integers(-9, 9) | st.just(None) | st.just({"class_path": "a.B"}),
        min_size=1,
        max_size=5,
        unique_by=str,
    ).map(lambda told: {"values": told}),
)
"""One dimension as a body says it, of any kind."""


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A search over `CONFIG` without a mistake."""
    space: dict[str, Any] = {}
    if draw(st.booleans()):
        rate: dict[str, Any] = {"log_uniform": draw(_pairs)}
        if draw(st.booleans()):
            rate |= {"rule": draw(st.sampled_from(["linear", "sqrt", "none"])), "per": draw(st.integers(1, 512))}
        space["learning_rate"] = rate
    if draw(st.booleans()):
        space["batch_size"] = {"powers_of_two": [2 ** draw(st.integers(2, 4)), 2 ** draw(st.integers(4, 9))]}
    if draw(st.booleans()):
        space["workers"] = {"values": draw(st.permutations([1, 2, 4]))[: draw(st.integers(1, 3))]}
    if draw(st.booleans()):
        words = st.sampled_from(["single", "ddp", "async", "bounded", "sync", "softsync"])
        space["strategy"] = {"values": draw(st.lists(words, min_size=1, max_size=4, unique=True))}
    if not space or draw(st.booleans()):
        space["model.hidden"] = {"int": draw(_whole)}
    told: dict[str, Any] = {
        "config": CONFIG,
        "space": space,
        "objective": draw(st.sampled_from(["val/loss", ["val/accuracy", "seconds"], {"val/loss": "max"}, "samples"])),
        "scaling": draw(st.sampled_from(["strong", "weak"])),
        "sampler": draw(st.sampled_from(["tpe", "random", {"random": {"seed": 7}}, "qmc"])),
        "trials": draw(st.integers(1, 500)),
        "seeds": draw(st.integers(1, 5)),
        "minutes": draw(st.none() | st.floats(0.5, 90, allow_nan=False)),
        "seconds_per_trial": draw(st.none() | st.integers(1, 10**6)),
        "exclusive": draw(st.none() | st.booleans()),
        "memory_mb": draw(st.none() | st.integers(1, 10**4)),
        "preset": draw(st.none() | st.just("strategies")),
    }
    return {key: told[key] for key in draw(st.permutations(list(told))) if told[key] is not None}


def problems(space: str, description: Description, cores: int | None = None, **told: Any) -> list[Problem]:
    """Of a search over `CONFIG` with this space, in YAML; `told` are further keys of it, or of the config's trainer."""
    config = {**CONFIG, "trainer": {**CONFIG["trainer"], **told.pop("trainer", {})}}
    body = {"config": config, "objective": "val/loss", **told, "space": yaml.load(space)}
    return search_problems(body, None, description, cores)
