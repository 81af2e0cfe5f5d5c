"""The parameters of a config's model, found by a process that makes the model, and cached by its arguments."""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.files import records
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.base.safe_path import HOME, environment, python
from scalebook.training.base.workspace import Workspace
from scalebook.training.engine.rules.codecs import WIDTHS, Shape
from scalebook.training.experiments.classes import GROUP_OF_KEY, ChosenClass, read_class
from scalebook.training.experiments.description import Description

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


def cached_parameters(config: Mapping[str, Any], description: Description) -> ModelParameters | None:
    """The cached parameters of the config's model; None before `find_out`."""
    path = kept_at("parameters", config, description)
    return None if path is None else records.peek(path, ModelParameters)


def find_out(config: Mapping[str, Any], description: Description) -> None:
    """Make the model in a process of its own, some 6 s, and cache its parameters, or why it cannot be made."""
    path = kept_at("parameters", config, description)
    if path is None:
        return
    place = Workspace(Path(description.folder))
    command = python("-m", "scalebook", "describe", "--workspace", str(place.root))
    command += ["--parameters", json.dumps(_asked(config, description))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=True, cwd=HOME, env=environment()
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


def kept_at(what: str, config: Mapping[str, Any], description: Description) -> Path | None:
    """The cache file of something that model and data decide, with their arguments and the modules that they come from;
    None while they are invalid."""
    classes = _asked(config, description)
    if classes is None or not description.folder:
        return None
    text = json.dumps([description.content, description.trusted, classes], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Workspace(Path(description.folder)).cache / f"{what}-{digest}.json"


def _asked(config: Mapping[str, Any], description: Description) -> dict[str, Any] | None:
    """Model and data, each with the arguments that are not at their default; None while the model is none."""
    classes: dict[str, Any] = {}
    for key in ("model", "data"):  # many models take the geometry of their layers from the data
        reference = read_class(config.get(key))
        info = reference.info(GROUP_OF_KEY[key], description)
        if info is not None and reference.args is not None:
            classes[key] = {
                "class_path": info.class_path,
                "init_args": ChosenClass(info, reference.args).non_defaults(),
            }
            classes[key]["init_args"].pop("batch_size", None)
    try:
        json.dumps(classes)
    except (TypeError, ValueError):  # a date, or a key that is none: said by those who check each argument
        return None
    return classes if "model" in classes else None
