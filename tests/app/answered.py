"""A notebook with an answered question, whose runs are recorded as training records them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import store
from tests.app.recorded import config, record

VIRTUAL: Final = {
    "class_path": "scalebook.training.lightning.AsyncPS",
    "init_args": {"rule": "async", "workers": 4, "host": "virtual", "clock": {"gradient_s": 0.1}},
}
LEVELS: Final = {"lab-one": 2.0, "lab-ddp-2": 1.0, "lab-async-4-virtual": 1.5}
"""By side, what its metric falls to: that of `one` is at the target last."""
QUESTION: Final = "Will more workers speed up my training, and where do they stop helping?"
ANSWER: Final = """```yaml answer=lab
question: more-workers
experiment: own
metric: {val/bits_per_dim: min}
target: 2.5
pilot: lab-pilot
searches: {lab-one: "", lab-ddp-2: "", lab-async-4-virtual: ""}
comparison: lab-sides
claims: [lab-ddp-2-or-one, lab-async-4-virtual-or-one]
```
"""
SIDES: Final = f"""```yaml comparison=lab-sides
runs: [{", ".join(LEVELS)}]
metric: {{val/bits_per_dim: min}}
x: [seconds, samples]
target: 2.5
```

```yaml claim=lab-ddp-2-or-one
runs: [lab-ddp-2]
against: lab-one
figure: seconds
metric: {{val/bits_per_dim: min}}
target: 2.5
at_most: 1.0
```

```yaml claim=lab-async-4-virtual-or-one
runs: [lab-async-4-virtual]
against: lab-one
figure: samples
metric: {{val/bits_per_dim: min}}
target: 2.5
at_most: 1.1
```
"""
CELLS: Final = ("lab-pilot", *LEVELS, "lab-sides", "lab-ddp-2-or-one", "lab-async-4-virtual-or-one")
HOW: Final = "1 pilot run, 3 experiments, 1 comparison, 2 claims"


def experiment(name: str, **changes: object) -> str:
    """The cell of an experiment, with 3 seeds."""
    body = yaml.dump({"repeats": 3, "config": config(1, "auto") | changes})
    return f"```yaml experiment={name}\n{body}```\n"


def written() -> str:
    """The notebook: the experiment, its answer, and the cells that answer it."""
    ddp = config(2, "ddp")["trainer"]
    simulated = config(1, VIRTUAL)["trainer"]
    cells = [
        "# Lab\n",
        experiment("own"),
        ANSWER,
        experiment("lab-pilot"),
        experiment("lab-one", seed_everything=1001),
        experiment("lab-ddp-2", seed_everything=1001, trainer=ddp),
        experiment("lab-async-4-virtual", seed_everything=1001, trainer=simulated),
        SIDES,
    ]
    return "\n".join(cells)


def answered(workspace: Workspace, seeds: Mapping[str, int] | None = None) -> Path:
    """`lab.md` with its runs: of each side as many seeds as `seeds` says, three otherwise."""
    path = workspace.root / "lab.md"
    path.write_text(written(), encoding="utf-8")
    description = catalogue.describe(workspace)
    for name, level in LEVELS.items():
        cell = store.read(path).notebook.experiment(name)
        assert cell is not None
        now = config_hash(cell.experiment(description))
        for place in range((seeds or {}).get(name, 3)):
            record(
                workspace, cell=name, notebook=path.name, seed=1001 + place, config_hash=now, level=level + 0.01 * place
            )
    return path
