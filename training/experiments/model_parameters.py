"""The parameters of a config's model, found by a process that makes the model, and cached by its arguments."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import Workspace, safe_path
from scalebook.training.base.files import BrokenRecord, records
from scalebook.training.engine.rules import WIDTHS, Shape
from scalebook.training.experiments.classes import ChosenClass
from scalebook.training.experiments.experiment import Experiment

DEADLINE_S: Final = 120.0
"""For the imports, and for making the model."""


@dataclass(frozen=True)
class ModelParameter:
    """`dtype` as torch calls it: `float32`. `trained`: whether it has a gradient. `sparse`: whether that has the
    rows alone that a batch has read."""

    name: str
    shape: list[int]
    dtype: str
    trained: bool = True
    sparse: bool = False


@dataclass(frozen=True)
class ModelParameters:
    """A model's parameters, with certain arguments; `problem`: why it could not be made without data and trainer, or
    ""."""

    parameters: list[ModelParameter]
    problem: str = ""

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the parameters that have a gradient."""
        return [tuple(parameter.shape) for parameter in self.parameters if parameter.trained]

    @property
    def width(self) -> int:
        """Bytes of a value of the widest type."""
        return max((WIDTHS.get(parameter.dtype, 4) for parameter in self.parameters), default=4)


def cached_parameters(experiment: Experiment) -> ModelParameters | None:
    """The cached parameters of the experiment's model; None before `find_out`."""
    path = kept_at("parameters", experiment)
    return None if path is None else records.peek(path, ModelParameters)


def find_out(experiment: Experiment) -> None:
    """Make the model in a process of its own, some 6 s, and cache its parameters, or why it cannot be made."""
    path = kept_at("parameters", experiment)
    if path is None:
        return
    place = Workspace(Path(experiment.description.folder))
    command = safe_path.python("-m", "scalebook", "describe", "--workspace", str(place.root))
    command += ["--parameters", json.dumps(_asked(experiment))]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
            cwd=safe_path.HOME,
            env=safe_path.environment(),
        )
        parameters = records.parse(path, done.stdout.encode(), ModelParameters)
    except BrokenRecord as error:  # the model's own code has printed something
        parameters = ModelParameters([], error.problem.message)
    except subprocess.TimeoutExpired:
        parameters = ModelParameters([], f"building it took more than {DEADLINE_S:g} s")
    except subprocess.CalledProcessError as error:
        parameters = ModelParameters([], (error.stderr.strip() or "no message").splitlines()[-1])
    place.create()
    records.save(path, parameters)


def kept_at(what: str, experiment: Experiment) -> Path | None:
    """The cache file of something that model and data decide, with their arguments and the modules that they come from;
    None while they are invalid."""
    classes, description = _asked(experiment), experiment.description
    if classes is None or not description.folder:
        return None
    text = json.dumps([description.content, description.trusted, classes], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Workspace(Path(description.folder)).cache / f"{what}-{digest}.json"


def _asked(experiment: Experiment) -> dict[str, Any] | None:
    """Model and data, each with the arguments that are not at their default; None while the model is none."""
    classes: dict[str, Any] = {}
    # many models take the geometry of their layers from the data
    for key, configured in (("model", experiment.model), ("data", experiment.data)):
        if configured.info is not None and configured.args is not None:
            own = ChosenClass(configured.info, configured.args).non_defaults()
            own.pop("batch_size", None)
            classes[key] = {"class_path": configured.info.class_path, "init_args": own}
    try:
        json.dumps(classes)
    except (TypeError, ValueError):  # a date, or a key that is none: said by those who check each argument
        return None
    return classes if "model" in classes else None
