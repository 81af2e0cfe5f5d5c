"""What `scalebook describe` tells of models, data sets, strategies and optimizers, with types.

The JSON is made by introspection in a process that may import torch and the user's modules; everybody else, the browser
and the validation, reads it through these classes. `Description.from_json` and `to_json` are exact inverses.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, get_args

from scalebook.training.base.files import records
from scalebook.training.engine.rules import CodecFacts, DampingFacts, LocalFacts, RuleFacts
from scalebook.training.experiments.known_classes import OURS

FieldType = Literal["int", "float", "bool", "str", "enum", "list", "class", "json"]
Group = Literal["models", "data", "strategies", "optimizers", "lr_schedulers", "modules"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class Field:
    """One argument of a class, or one key of the trainer.

    `type` "json" is anything that needs free YAML. `minimum`/`maximum` are inclusive unless the matching `exclusive_*`
    is set. `default` is None both for "no default" (then `required`) and for a default of None (then `nullable`).

    `type` "class" is one of several classes with settings of their own: the value names one of `classes` in the ways
    that `ClassInfo` tells, or is one of its names in `choices`, which stands for that class with its defaults. These
    are its own `options`; or, where it has a `group`, the classes of that (of those in `choices` alone, if there are
    any), without their first `given` arguments, which the code passes that calls the class. A "list" or "json" with a
    `group` holds such classes among other things.
    """

    name: str
    type: FieldType
    help: str = ""
    required: bool = False
    nullable: bool = False
    default: Any = None
    choices: list[Any] = field(default_factory=list)
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    advanced: bool = False
    options: list["ClassInfo"] = field(default_factory=list)
    group: Group | None = None
    given: int = 0

    @cached_property
    def classes(self) -> "list[ClassInfo]":
        """Those that the value may name. Of a `group` none, until the field is part of a description."""
        if self.group is None:
            return self.options
        description: Description | None = getattr(self, _PART_OF, None)
        infos: list[ClassInfo] = getattr(description, self.group, [])
        infos = [info for info in infos if not self.choices or info.class_path in self.choices]
        return [replace(info, fields=info.fields[self.given :]) for info in infos] if self.given else infos

    def refusal(self, name: str) -> "NotOffered | None":
        """Why its `group` does not have the class called `name`, where that is known."""
        description: Description | None = getattr(self, _PART_OF, None)
        return None if description is None else description.refusal(name)

    def option(self, name: str) -> "ClassInfo | None":
        """The class of this field called `name`: by full path, class name or bare name."""
        return _called(name, self._by_name)

    @cached_property
    def _by_name(self) -> "dict[str, ClassInfo]":
        return _index(self.classes)


@dataclass(frozen=True)
class ClassInfo:
    """One class that a config may name.

    `config_value`, when not None, is what the config holds instead of `class_path`/`init_args` (`auto`, `ddp`); for a
    class that is the value of a field, its bare name, which stands for its defaults (`bounded`).
    `own_optimizer`: a module that overrides `configure_optimizers`; the config's optimizer is then not used.
    """

    class_path: str
    name: str
    summary: str = ""
    help: str = ""
    source: Literal["scalebook", "library", "user"] = "scalebook"
    fields: list[Field] = field(default_factory=list)
    own_optimizer: bool = False
    config_value: str | None = None
    metrics: list[str] = field(default_factory=list)
    """For models: the names of the validation metrics it logs, the main one first, as far as known."""
    rule: RuleFacts | None = None
    """For rules of a parameter server: what the class declares."""
    damping: DampingFacts | None = None
    """For its dampings."""
    codec: CodecFacts | None = None
    """For its codecs."""
    local: LocalFacts | None = None
    """For the settings of when its workers communicate."""


@dataclass(frozen=True)
class NotOffered:
    """A class of the user's modules, or of ours, that no config can name."""

    class_path: str
    why: str
    """As the rest of a sentence: `is abstract`."""
    fix: str = ""  # archives of 0.2.0 have it under another name
    by_mistake: bool = True
    """Whether its absence is probably a mistake: not for a base class, which is there to be derived from."""
    lacks_extra: bool = False
    """Whether it can be used once an extra of Scalebook is installed."""

    def __str__(self) -> str:
        return f"{self.class_path} {self.why}. {self.fix}"


@dataclass(frozen=True)
class Description:
    """All that a form and a validation need to know."""

    models: list[ClassInfo]
    data: list[ClassInfo]
    strategies: list[ClassInfo]
    optimizers: list[ClassInfo]
    lr_schedulers: list[ClassInfo]
    trainer: list[Field]
    default_optimizer: dict[str, Any]
    """`{class_path, init_args}` used where the config names none and the model has none of its own."""
    modules: list[ClassInfo] = field(default_factory=list)
    """Subclasses of `torch.nn.Module`, the user's and torch's, where an argument takes one; else none."""
    packages: list[str] = field(default_factory=list)
    """The user's modules that were imported."""
    refused: list[NotOffered] = field(default_factory=list)
    """Their models and data sets that are in none of the lists."""
    content: str = ""
    """Hash of all that the description depends on; a cache is valid while it is the same."""
    problems: list[str] = field(default_factory=list)
    """The user's modules that could not be imported, each with its cause."""
    folder: str = ""
    """The workspace; where it is not `trusted`, its configs name classes of ours alone and write within it."""
    trusted: bool = True
    clustered: bool = False
    """Whether its jobs run on the machines of a cluster, so that one may have several."""

    def __post_init__(self) -> None:
        for field_ in _all_fields(info for group in GROUPS for info in getattr(self, group)):
            if field_.group is not None:
                object.__setattr__(field_, _PART_OF, self)

    @classmethod
    def from_json(cls, text: str) -> "Description":
        return records.parse(Path("description"), text.encode(), cls)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def refusal(self, name: str) -> NotOffered | None:
        """Why the class called `name`, by full path or short name, is in no list; None where nothing is known of it."""
        return next(
            (entry for entry in self.refused if name in (entry.class_path, entry.class_path.rpartition(".")[2])), None
        )

    def find(self, group: Group, name: str) -> ClassInfo | None:
        """The class called `name` (full path, short name or config value) in `group`."""
        return _called(name, self._by_name[group])

    @cached_property
    def _by_name(self) -> dict[Group, dict[str, ClassInfo]]:
        return {group: _index(getattr(self, group)) for group in GROUPS}


_PART_OF: Final = "_part_of"
"""Attribute of a field with a `group`: the description, which is not a part of what is compared or written."""


def _all_fields(infos: Iterable[ClassInfo]) -> Iterator[Field]:
    for info in infos:
        for field_ in info.fields:
            yield field_
            yield from _all_fields(field_.options)


def _called(name: str, by_name: dict[str, ClassInfo]) -> ClassInfo | None:
    """The class called `name`. A path of ours means the class with its last name, wherever that is today."""
    return by_name.get(f"{OURS}{name.rpartition('.')[2]}" if name.startswith(OURS) else name)


def _index(entries: Iterable[ClassInfo]) -> dict[str, ClassInfo]:
    """Each by all its names, ours also by `scalebook.` and the last; of several with the same name the first."""
    by_name: dict[str, ClassInfo] = {}
    for entry in entries:
        path = entry.class_path
        ours = f"{OURS}{path.rpartition('.')[2]}" if path.startswith(OURS) else None
        for name in (path, ours, entry.name, entry.config_value):
            if name is not None:
                by_name.setdefault(name, entry)
    return by_name
