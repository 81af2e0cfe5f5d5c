"""What a base config says, in one form for all the ways to say it."""

from collections.abc import Mapping
from typing import Any

from scalebook.training.config.class_fields import Chosen, short
from scalebook.training.config.classes import GROUP_OF_KEY, mapping, named
from scalebook.training.config.complete import DEFAULT_SEED, DEFAULT_THREADS, with_extras
from scalebook.training.config.description import ClassInfo, Description
from scalebook.training.config.paths import with_optimizer
from scalebook.training.config.renamed import first_paths


def base_content(config: Mapping[str, Any], description: Description) -> dict[str, Any]:
    """`config` with classes by full path, without arguments that repeat a default, with seed, threads and optimizer.

    A default that is added by a later version changes nothing; what it does not know it leaves as it stands.
    """
    content = with_extras(with_optimizer(config, description))
    for key, group in GROUP_OF_KEY.items():
        if content.get(key) is not None:
            content[key] = _said(content[key], named(content[key]).info(group, description))
    trainer = {key: value for key, value in mapping(content.get("trainer")).items() if value is not None}
    strategy = trainer.pop("strategy", "auto")
    trainer["strategy"] = _said(strategy, named(strategy).info("strategies", description))
    seed = content.get("seed_everything")
    content["seed_everything"] = DEFAULT_SEED if seed is None or isinstance(seed, bool) else seed
    content["threads"] = DEFAULT_THREADS if content.get("threads") is None else content["threads"]
    kept = {key: value for key, value in content.items() if value is not None}
    return {str(key): item for key, item in first_paths({**kept, "trainer": trainer}).items()}


def _said(value: Any, info: ClassInfo | None) -> Any:
    reference = named(value)
    if info is None or reference.args is None:
        return value
    known = {field.name: field for field in info.fields if field.type == "class"}
    args = {name: short(given, known[name]) if name in known else given for name, given in reference.args.items()}
    more = {key: item for key, item in mapping(value).items() if key not in ("class_path", "init_args")}
    return {"class_path": info.class_path, "init_args": Chosen(info, args).own(), **more}
