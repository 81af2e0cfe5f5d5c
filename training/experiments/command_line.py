"""The command line of `scalebook fit`: config files and `--key value`, merged as LightningCLI merges them.

Done without torch, so that a mistake is reported at once. Later ones win; a value is YAML; `--key+ value` appends to a
list. Below a key that names a class `init_args` may be left out: `--model.features 32`, `--trainer.strategy.rule.bound
3`. A path leaves all beside it as it was: `--trainer.strategy.clock.link.bandwidth 1.0e+6`.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.base.files import safe_reading, yaml
from scalebook.training.experiments.classes import GROUP_OF_KEY, choose_class, read_class
from scalebook.training.experiments.description import Description, Field
from scalebook.training.experiments.experiment import Experiment

CONFIG_OPTIONS: Final = ("-c", "--config")
CLASS_KEYS: Final = (*GROUP_OF_KEY, "trainer.strategy")


class ByPath(dict[str, Any]):
    """What a path leads to, `{a: {b: value}}`: only the value at its end replaces another."""

    @classmethod
    def of(cls, parts: Iterable[str], value: Any) -> "ByPath":
        """`parts` from the outermost key on, one at least."""
        for part in reversed(list(parts)):
            value = cls({part: value})
        assert isinstance(value, cls)
        return value

    def over(self, before: Any) -> dict[str, Any]:
        """A plain mapping of what was there `before` and the value."""
        merged = copy.deepcopy(dict(before)) if isinstance(before, Mapping) else {}
        for name, value in self.items():
            merged[name] = _over(merged.get(name), value)
        return merged


def _over(before: Any, value: Any) -> Any:
    if isinstance(value, ByPath):
        return value.over(before)
    return {name: _over(None, part) for name, part in value.items()} if type(value) is dict else copy.deepcopy(value)


@dataclass
class CommandLine:
    """What the command line says: the merged config, and the options that are about the command itself."""

    config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str | None] = field(default_factory=dict)

    def experiment(self, description: Description) -> Experiment:
        """What the config means."""
        return Experiment(self.config, description)


def parse(argv: Sequence[str], description: Description, options: Mapping[str, bool]) -> CommandLine:
    """Merge the words after the command. `options` are the command's own, each with whether it takes a value.

    ConfigError for a file that cannot be read, a word that is no option, an option without its value.
    """
    line = CommandLine()
    words = list(argv)
    while words:
        option, equals, value = words.pop(0).partition("=")
        if not option.startswith("-"):
            raise ConfigError(
                option, "is not an option", f"Use -c {option} for a config, or --key value.", "unknown-key"
            )
        takes_value = options.get(option, True)
        if takes_value and not equals:
            if not words or (words[0].startswith("--") and option not in CONFIG_OPTIONS):
                raise ConfigError(option, "has no value", f"Use {option} VALUE.", "missing")
            value = words.pop(0)
        if option in CONFIG_OPTIONS:
            line.config = merge(line.config, read(Path(value)), description)
        elif option in options:
            line.options[option] = value if takes_value else None
        elif not option.startswith("--"):
            raise ConfigError(option, "is not an option", "Use -c FILE for a config, or --key value.", "unknown-key")
        else:
            _set(line, option[2:], value, description)
    return line


def read(path: Path) -> dict[str, Any]:
    """A config file; ConfigError names the file, and the line of a mistake in it."""
    text = safe_reading.read_text(path)
    try:
        content = yaml.load(text)
    except ConfigError as error:
        problem = error.problem
        raise ConfigError(f"{path}, {problem.key}", problem.message, problem.fix, problem.code) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(str(path), "is not a mapping", "Use keys such as `model:` and `data:`.", "wrong-type")
    return content


def merge(old: Mapping[str, Any], new: Mapping[str, Any], description: Description, key: str = "") -> dict[str, Any]:
    """`new` over `old`, mapping by mapping. Where a class is replaced, arguments that fit the new one are kept."""
    merged = {name: before if name in new else copy.deepcopy(before) for name, before in old.items()}
    for name, value in new.items():
        path = f"{key}.{name}" if key else str(name)
        before = old.get(name)
        if path in CLASS_KEYS and before is not None and value is not None:
            merged[name] = _merge_class(path, before, value, description)
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = merge(before, value, description, path)
        else:
            merged[name] = _over(before, value)
    return merged


def _merge_class(path: str, before: Any, value: Any, description: Description) -> Any:
    group = GROUP_OF_KEY.get(path, "strategies")
    old = read_class(before)
    if isinstance(value, Mapping) and "class_path" not in value:
        value = {"class_path": old.name, **value}
    new = read_class(value)
    if old.name is None or new.name is None or old.args is None or new.args is None:
        return _over(None, value)
    info = new.info(group, description)
    fields = {field.name: field for field in info.fields} if info else {}
    same = new.name == old.name or (info is not None and info == old.info(group, description))
    fitting = {name: arg for name, arg in old.args.items() if same or name in fields}
    if not fitting and isinstance(value, str):
        return value
    arguments = {name: _merge_argument(fitting.get(name), arg, fields.get(name)) for name, arg in new.args.items()}
    return {"class_path": new.name, "init_args": {**copy.deepcopy(fitting), **arguments}}


def _merge_argument(before: Any, value: Any, field: Field | None) -> Any:
    """`value` over what an argument had `before`, or has by itself."""
    if field is None or field.type != "class":
        return _over(before, value)
    return _merge_field(field.default if before is None else before, value, field)


def _merge_field(before: Any, value: Any, field: Field) -> Any:
    """`value` over `before` where both name classes of one field; arguments are kept while the class is the same.

    A mapping without class_path gives arguments to the class that is there, with or without `init_args`.
    """
    old = choose_class(before, field)
    if old is not None and isinstance(value, Mapping) and "class_path" not in value:
        value = {"class_path": old.info.class_path, "init_args": value.get("init_args", value)}
    new = choose_class(value, field)
    if old is None or new is None or new.info != old.info or isinstance(value, str):
        return _over(None, value)
    fields = {field.name: field for field in new.info.fields}
    arguments = {name: _merge_argument(old.args.get(name), arg, fields.get(name)) for name, arg in new.args.items()}
    return {"class_path": new.info.class_path, "init_args": {**copy.deepcopy(dict(old.args)), **arguments}}


def _set(line: CommandLine, key: str, text: str, description: Description) -> None:
    """Set one dotted key to the YAML value `text`."""
    try:
        value = yaml.load(text)
    except ConfigError as error:
        raise ConfigError(
            f"--{key}", f"is {text!r}, which is not YAML", "Quote it for the shell.", "wrong-type"
        ) from error
    append = key.endswith("+")
    parts = key.removesuffix("+").split(".")
    for class_key in CLASS_KEYS:
        head = class_key.split(".")
        below = parts[len(head) :]
        if parts[: len(head)] == head and below and below[0] not in ("class_path", "init_args", "dict_kwargs"):
            parts = [*head, "init_args", *below]
            if class_key == "optimizer" and line.config.get("optimizer") is None:
                line.config["optimizer"] = copy.deepcopy(description.default_optimizer)
    if append:
        before: Any = line.config
        for part in parts:
            before = (before.get(part) or {}) if isinstance(before, Mapping) else {}
        value = [*(before if isinstance(before, list) else []), *(value if isinstance(value, list) else [value])]
    line.config = merge(line.config, ByPath.of(parts, value), description)
