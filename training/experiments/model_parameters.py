"""The parameters of a config's model, found by a process that makes the model, and cached by its arguments."""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from scalebook.training.base import Workspace, safe_path
from scalebook.training.base.files import BrokenRecord, records
from scalebook.training.engine.rules import WIDTHS, Shape
from scalebook.training.experiments.classes import ChosenClass
from scalebook.training.experiments.experiment import Experiment

T = TypeVar("T")
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
    if path is not None:
        answer = ask_describe(path, "--parameters", _asked(experiment), ModelParameters, DEADLINE_S, "building it")
        records.save(path, ModelParameters([], answer) if isinstance(answer, str) else answer)


def ask_describe(
    path: Path, option: str, content: Mapping[str, Any] | None, kind: type[T], deadline_s: float, doing: str
) -> T | str:
    """What `scalebook describe` answers to `option` with `content`, in a process of its own; or why it has no answer.

    `path`: the file in the workspace's cache that the caller then writes. `doing`: what takes the time.
    """
    place = Workspace(path.parents[2])
    place.create()
    command = safe_path.python("-m", "scalebook", "describe", "--workspace", str(place.root), option)
    try:
        command.append(json.dumps(content))
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=deadline_s, check=True, cwd=safe_path.HOME,
            env=safe_path.environment(), stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return records.parse(path, done.stdout.encode(), kind)
    except BrokenRecord as error:  # the model's own code has printed something past Python
        return error.problem.message
    except (TypeError, ValueError) as error:  # a date in it, or a null character
        return f"the config cannot be handed over: {error}"
    except subprocess.TimeoutExpired:
        return f"{doing} took more than {deadline_s:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", "") or str(error)
        return output.strip().splitlines()[-1] if output.strip() else "its process died"


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
