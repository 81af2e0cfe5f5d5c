import collections.abc
import gc
import json
from abc import ABC, abstractmethod
from typing import Literal

import pytest
import torch
from jsonargparse.typing import ClosedUnitInterval, NonNegativeInt, PositiveFloat

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.describe_command import main
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.introspect import fields_of
from scalebook.training.experiments.validation import validate
from tests.training.describing import forked


def by_name(description: Description, group: str, name: str) -> ClassInfo:
    entries: list[ClassInfo] = getattr(description, group)
    return {one.name: one for one in entries}[name]


def field(info: ClassInfo, name: str) -> Field:
    return {one.name: one for one in info.fields}[name]


def test_all_parts_are_there(description: Description) -> None:
    assert [one.name for one in description.models] == [
        "ConvClassifier", "MLPClassifier", "PixelCNN", "Ranker", "Translator",
    ]  # fmt: skip
    assert [one.name for one in description.data] == [
        "Dataset", "Digits", "Docstrings", "Messages", "PhotoPatches",
    ]  # fmt: skip
    assert [one.config_value or one.name for one in description.strategies] == [
        "auto",
        "ddp",
        "AsyncPS",
        "Peers",
        "ModelParallel",
    ]
    assert {"SGD", "Adam", "AdamW"} <= {one.name for one in description.optimizers}
    assert {"StepLR", "CosineAnnealingLR", "ReduceLROnPlateau"} <= {one.name for one in description.lr_schedulers}
    assert description.problems == []


def test_json_and_back_is_the_same(description: Description) -> None:
    assert Description.from_json(description.to_json()) == description


def test_a_model_with_bounds_and_help(description: Description) -> None:
    info = by_name(description, "models", "PixelCNN")
    layers = field(info, "layers")
    assert (layers.type, layers.minimum, layers.exclusive_minimum, layers.advanced) == ("int", 0, True, False)
    assert layers.help == "Number of gated layers, including the first."
    assert info.summary.startswith("Gated PixelCNN")
    assert info.own_optimizer is False
    assert field(info, "images").advanced


def test_the_strategy_shows_its_arguments_and_not_its_plumbing(description: Description) -> None:
    info = by_name(description, "strategies", "AsyncPS")
    assert {"rule", "workers"} <= {one.name for one in info.fields}
    assert not {"accelerator", "parallel_devices", "cluster_environment"} & {one.name for one in info.fields}
    assert field(info, "workers").nullable
    assert "async" in field(info, "rule").choices


def test_optimizers_show_what_matters_first(description: Description) -> None:
    info = by_name(description, "optimizers", "Adam")
    assert [one.name for one in info.fields if not one.advanced] == ["lr", "betas", "weight_decay"]
    assert (field(info, "lr").type, field(info, "lr").minimum) == ("float", 0)
    assert field(info, "foreach").advanced
    assert "Default" not in field(info, "lr").help


def test_every_key_of_the_trainer_is_known(description: Description) -> None:
    import inspect

    from lightning.pytorch import Trainer

    keys = {one.name for one in description.trainer}
    assert keys == set(inspect.signature(Trainer).parameters) - {"strategy"}


class Odd:
    """Odd.

    Args:
        mode: One of two. Default: ``a``.
        share: A share (default: 0.5).
    """

    def __init__(
        self,
        must: PositiveFloat,
        mode: Literal["a", "b"] = "a",
        share: ClosedUnitInterval = 0.5,
        some: list[int] | None = None,
        count: NonNegativeInt | None = None,
        flag: bool = True,
        shape: tuple[int, int] = (1, 2),
        anything: dict[str, int] | None = None,
        lr: float | torch.Tensor = 0.1,
    ) -> None: ...


def test_types_become_fields() -> None:
    found = {one.name: one for one in fields_of(Odd)}
    assert {name: one.type for name, one in found.items()} == {
        "must": "float", "mode": "enum", "share": "float", "some": "list", "count": "int", "flag": "bool",
        "shape": "list", "anything": "json", "lr": "float",
    }  # fmt: skip
    assert found["must"].required
    assert found["mode"].choices == ["a", "b"]
    assert (found["share"].minimum, found["share"].maximum, found["share"].exclusive_maximum) == (0, 1, False)
    assert (found["count"].minimum, found["count"].nullable) == (0, True)
    assert found["shape"].default == [1, 2]
    assert (found["mode"].help, found["share"].help) == ("One of two.", "A share.")


class Shape(ABC):
    """A shape."""

    @abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    """Four equal sides.

    Args:
        side: How long.
    """

    name = "square"

    def __init__(self, side: PositiveFloat = 1.0) -> None: ...

    def area(self) -> float:
        return 1.0


class Cut(Shape):
    """One without another."""

    name = "cut"

    def __init__(self, whole: Shape, hole: Literal["square"] | Shape = "square") -> None: ...

    def area(self) -> float:
        return 1.0


class Board:
    """A board.

    Args:
        shape: Its shape.
    """

    def __init__(
        self,
        required: Shape,
        shape: Literal["cut", "square"] | Shape = "square",
        maybe: Shape | None = None,
        words: Literal["square", "circle"] | Shape = "square",
        mixed: Shape | int = 1,
    ) -> None: ...


def test_an_argument_of_an_abstract_class_is_one_of_its_classes() -> None:
    found = {one.name: one for one in fields_of(Board)}
    shape = found["shape"]
    assert (shape.type, shape.default, shape.choices, shape.help) == (
        "class",
        "square",
        ["cut", "square"],
        "Its shape.",
    )
    assert [(one.name, one.config_value, one.summary) for one in shape.options] == [
        ("Cut", "cut", "One without another."), ("Square", "square", "Four equal sides."),
    ]  # fmt: skip
    (side,) = shape.options[1].fields
    assert (side.type, side.default, side.minimum, side.exclusive_minimum, side.help) == (
        "float",
        1,
        0,
        True,
        "How long.",
    )
    assert {one.type for one in shape.options[0].fields} == {"json"}, "a shape made of shapes is free YAML"
    assert (found["required"].type, found["required"].required, found["required"].choices) == ("class", True, [])
    assert [one.config_value for one in found["required"].options] == [None, None]
    assert (found["maybe"].type, found["maybe"].nullable) == ("class", True)
    assert {found["words"].type, found["mixed"].type} == {"json"}, "one that accepts more than classes and their names"


def test_classes_of_strangers_are_no_options() -> None:
    """Of the same base, but neither beside it nor in a module of the user's."""
    stranger = type("Stranger", (Shape,), {"__module__": "collections.abc", "area": Square.area})
    setattr(collections.abc, "Stranger", stranger)  # noqa: B010 - a name that the module has not
    try:
        (plain,) = [one for one in fields_of(Board) if one.name == "shape"]
        (own,) = [one for one in fields_of(Board, packages=("collections.abc",)) if one.name == "shape"]
    finally:
        delattr(collections.abc, "Stranger")
        del stranger
        gc.collect()
    assert [one.name for one in plain.options] == ["Cut", "Square"]
    assert [(one.name, one.source, one.config_value) for one in own.options][-1] == ("Stranger", "user", None)


def test_the_command_prints_one_class_and_names_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torch.optim.Adam"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "Adam"
    with pytest.raises(ConfigError, match=r"PixelCN: is not a known class\. Did you mean `PixelCNN`"):
        main(["PixelCN"])


def test_a_class_of_ours_keeps_its_short_name(workspace: Workspace) -> None:
    """Another one of that name is called by its path, and who writes the short name is told.

    In a fork: LightningCLI's parser finds all classes of a process.
    """
    module = workspace.root / "twin_names.py"
    module.write_text(
        "from scalebook.training.zoo.data import Digits as Ours\n\nclass Digits(Ours):\n    pass\n", encoding="utf-8"
    )
    (workspace.root / "scalebook.toml").write_text('modules = ["twin_names"]\n', encoding="utf-8")
    told = forked("describe", "--trust")
    assert told.returncode == 0, told.stderr
    both = Description.from_json(told.stdout)
    assert [one.name for one in both.data if one.class_path.endswith("Digits")] == ["Digits", "twin_names.Digits"]
    (problem,) = validate(Experiment.read({"model": "MLPClassifier", "data": "Digits"}, both))
    assert str(problem) == (
        "data: is 'Digits', which could be scalebook.training.zoo.data.Digits or twin_names.Digits; "
        "scalebook.training.zoo.data.Digits is used. Use the full path of the class that you mean."
    )
    assert problem.severity == "warning"
    assert not list(validate(Experiment.read({"model": "MLPClassifier", "data": "twin_names.Digits"}, both)))
