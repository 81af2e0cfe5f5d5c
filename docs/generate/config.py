"""`reference/config.md`: every key of a config and of a notebook's cells, in the sentences that the form shows."""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from scalebook.training.base.workspace import Workspace
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link
from scalebook.training.engine.rules.run_limits import Limits, WorkerRange
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.experiments.known_classes import CALLBACKS, CLASSES
from scalebook.training.experiments.lr_scaling import FIELDS as RATE_FIELDS
from scalebook.training.experiments.search.keys import DEFAULTS, HANDLE_HELP, KIND_HELP, PRUNERS, SAMPLERS
from scalebook.training.experiments.search.space_body import MORE_KEYS
from scalebook.training.experiments.validation import OF_THE_RUN, SEED
from scalebook.training.notebook.bodies import HELP as CELLS

from .markdown import code, table, words

TITLE: Final = """# Config

An experiment is a [LightningCLI](https://lightning.ai/docs/pytorch/stable/cli/lightning_cli.html) `fit` config.
This page lists its keys, and those of searches, comparisons and claims, with type, default and help as the form shows
them. `scalebook describe` prints the same as JSON, and `scalebook fit --print_config` the whole of one config.

A class is written as its name, `model: PixelCNN`, or with arguments, `model: {class_path: PixelCNN, init_args: {layers:
5}}`. On the command line `init_args` may be left out: `--model.layers 5`.

"""
HEAD: Final = ("key", "type", "default", "meaning")
TOP: Final = {
    "trainer": ("mapping", "Arguments of Lightning's Trainer: [trainer](#trainer)."),
    "model": ("class", "The model: [models](#models), or a custom LightningModule."),
    "data": ("class", "The data: [data sets](#data-sets), or a custom LightningDataModule."),
    "optimizer": ("class", "The optimizer: [optimizers](#optimizers). Without effect if the model has its own."),
    "lr_scheduler": ("class", "How the learning rate changes during the run: [schedulers](#schedulers)."),
    "lr_scaling": ("mapping", "How the learning rate scales with the batch size: [lr_scaling](#lr_scaling)."),
    "ckpt_path": ("str", "Checkpoint to resume from, or to evaluate: the path of a local file."),
}
"""Keys of a config that are no single value."""
SHARED: Final = 5
"""Of so many optimizers an argument is listed once."""
PARTS: Final = {
    "clock": (ClockSettings, Distribution, Link, Death),
    "limits": (Limits,),
    "workers": (WorkerRange,),
}
"""Arguments of AsyncPS that are mappings, and what these hold."""


@cache
def described() -> Description:
    """What `scalebook describe` says of an empty folder; a process of its own imports torch."""
    with TemporaryDirectory() as folder:
        return describe(Workspace(Path(folder)))


def page(description: Description) -> str:
    """The page."""
    return TITLE + "".join(_sections(description))


def _sections(description: Description) -> Iterator[str]:
    top = [_row(field.name, field) for field in (SEED, *OF_THE_RUN.values())]
    top += [(f"`{key}`", kind, "", meaning) for key, (kind, meaning) in TOP.items()]
    yield f"## Top level\n\n{table(HEAD, top)}"
    yield f"### lr_scaling\n\n{_fields(RATE_FIELDS)}"
    yield "## Models\n\n" + "".join(_class(info) for info in description.models)
    yield "## Data sets\n\n" + "".join(_class(info) for info in description.data)
    yield f"## Trainer\n\n{_fields(description.trainer)}"
    yield _callbacks()
    yield "## Strategies\n\nThe value of `trainer.strategy`.\n\n" + "".join(map(_strategy, description.strategies))
    yield "## Optimizers\n\n" + _optimizers(description.optimizers)
    yield "## Schedulers\n\n" + "".join(_class(info) for info in description.lr_schedulers)
    yield from _cells()


def _class(info: ClassInfo, level: int = 3) -> str:
    """A section of one class, and of the classes that its arguments may name."""
    name = info.config_value if info.config_value and level > 3 else info.name
    parts = [f"{'#' * level} {name}", f"`{info.class_path}`", words(info.summary)]
    if info.config_value not in (None, name):
        parts[1] += f", written `{info.config_value}`"
    if info.help:
        parts.append(_help(info.help))
    if info.metrics:
        parts.append(f"It logs {', '.join(f'`{metric}`' for metric in info.metrics)}.")
    parts.append(_fields(info.fields).rstrip() if info.fields else "It takes no arguments.")
    return "\n\n".join(parts) + "\n\n"


def _optimizers(infos: Sequence[ClassInfo]) -> str:
    """What many of a library's share, its switches for speed, once above them."""
    fields_ = [field for info in infos if info.source == "library" for field in info.fields]
    times = Counter(field.name for field in fields_ if field.advanced and field.type == "bool")
    shared = {field.name: field for field in reversed(fields_) if times[field.name] >= SHARED}
    own = [replace(info, fields=[field for field in info.fields if field.name not in shared]) for info in infos]
    also = {info.name: [field.name for field in info.fields if field.name in shared] for info in infos}
    sections = [
        _class(info) + (f"Also: {', '.join(f'`{name}`' for name in also[info.name])}.\n\n" if also[info.name] else "")
        for info in own
    ]
    return f"Several of torch's optimizers take these:\n\n{_fields(shared.values())}" + "".join(sections)


def _help(text: str) -> str:
    """A docstring's paragraphs; what is indented is a formula."""
    return "\n\n".join(part if part.startswith("    ") else words(part) for part in text.split("\n\n"))


def _strategy(info: ClassInfo) -> str:
    """With its rules, codecs and the like below it."""
    inner = "".join(
        f"#### {info.name}: {field.name}\n\n{words(field.help)}\n\n"
        + "".join(_class(option, level=5) for option in field.options)
        for field in info.fields
        if field.options and field.name not in ("pull_codec", *(("push_codec",) if info.name == "AsyncPS" else ()))
    )
    if info.name == "AsyncPS":
        inner += "".join(f"#### AsyncPS: {name}\n\n{''.join(map(_part, kinds))}" for name, kinds in PARTS.items())
        inner += "The codecs of `push_codec` and `pull_codec` are those of [ddp](#ddp-codec).\n\n"
    return _class(info) + inner


def _part(kind: type) -> str:
    """A mapping that is a dataclass of ours, by its docstring."""
    summary, helps = documented(kind)
    rows = [
        (f"`{field.name}`", _annotation(field.type), code(_default(field)), words(helps.get(field.name, "")))
        for field in fields(kind)
    ]
    return f"{words(summary)}\n\n{table(HEAD, rows)}"


def documented(kind: type) -> tuple[str, dict[str, str]]:
    """The docstring before `Args:`, and what it says of each argument."""
    text, _, args = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    found: dict[str, str] = {}
    name = ""
    for line in args.splitlines():
        if begun := re.match(r"    (\w+): (.*)", line):
            name = begun[1]
            found[name] = begun[2]
        elif line.strip() and name:
            found[name] += f" {line.strip()}"
    return text.strip(), found


ANNOTATIONS: Final = {
    "float": "float", "int": "int", "bool": "bool", "str": "str", "Mapping": "mapping", "Sequence": "list",
    "Link": "mapping",
}  # fmt: skip


def _annotation(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = text.replace("typing.", "").replace("collections.abc.", "")
    distributed = "Distribution" in text
    kind = next((word for name, word in ANNOTATIONS.items() if re.search(rf"\b{name}\b", text)), "str")
    if re.match(r"(Mapping|Sequence|Link)", text.rpartition(".")[2]) or text.startswith(("Mapping", "Sequence")):
        kind = "list" if text.startswith("Sequence") else "mapping"
    return f"{kind} or distribution" if distributed and kind == "float" else kind


def _default(field: Any) -> Any:
    if field.default is not MISSING and field.default == field.default:
        return list(field.default) if isinstance(field.default, tuple) else field.default
    return None


def _fields(known: Iterable[Field]) -> str:
    return table(HEAD, (_row(field.name, field) for field in known))


def _row(name: str, field: Field) -> tuple[str, str, str, str]:
    default = "required" if field.required else "`null`" if field.default is None else code(field.default)
    return f"`{name}`", _type(field), default, words(field.help)


def _type(field: Field) -> str:
    """The type in words, with bounds and choices."""
    if field.type in ("enum", "class") or field.options:
        names = [str(choice) for choice in field.choices] or [option.name for option in field.options]
        kind = "class" if field.type == "class" else "enum"
        text = f"{kind}: {', '.join(f'`{name}`' for name in names)}" if names else kind
    else:
        text = {"json": "YAML"}.get(field.type, field.type)
    bounds = []
    if field.minimum is not None:
        bounds.append(f"{'above' if field.exclusive_minimum else 'at least'} {_number(field.minimum)}")
    if field.maximum is not None:
        bounds.append(f"{'below' if field.exclusive_maximum else 'at most'} {_number(field.maximum)}")
    return ", ".join([text, *bounds, *(["or null"] if field.nullable else [])])


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e5 else f"{int(value)}"


def _callbacks() -> str:
    names = sorted(entry.path for entry in CLASSES if entry.path.startswith(f"{CALLBACKS}."))
    listed = "\n".join(f"- `{name}`" for name in names)
    return (
        "### Callbacks\n\n`trainer.callbacks` takes a list of Lightning callbacks, each as `{class_path, init_args}`. "
        f"A folder that is not trusted may name these:\n\n{listed}\n\n"
    )


def _cells() -> Iterator[str]:
    yield (
        "## Cells of a notebook\n\nA cell is a fenced block of YAML whose first line names its kind: "
        "` ```yaml experiment=NAME `, `comparison`, `search` or `claim`.\n\n"
    )
    for kind, helps in CELLS.items():
        defaults = {**DEFAULTS, "trials": 100, "seeds": 1, "sampler": "tpe", "pruner": "none", "scaling": "strong"}
        rows = [
            (f"`{key}`", code(defaults.get(key)) if kind == "search" else "", words(text))
            for key, text in helps.items()
        ]
        yield f"### {kind.capitalize()}\n\n{table(('key', 'default', 'meaning'), rows)}"
        if kind == "search":
            yield _searching()


def _searching() -> str:
    kinds = [
        (f"`{kind}`", ", ".join(f"`{more}`" for more in MORE_KEYS.get(kind, ())), words(text))  # type: ignore[call-overload]
        for kind, text in KIND_HELP.items()
    ]
    parts: Mapping[str, str] = {
        "Dimensions": table(("name", "meaning"), ((f"`{name}`", words(text)) for name, text in HANDLE_HELP.items())),
        "Ranges": table(("kind", "further keys", "meaning"), kinds),
        "Samplers": table(("sampler", "meaning"), ((f"`{name}`", one.text) for name, one in SAMPLERS.items())),
        "Pruners": table(("pruner", "meaning"), ((f"`{name}`", one.text) for name, one in PRUNERS.items())),
    }
    return "".join(f"#### {title}\n\n{text}" for title, text in parts.items())


if __name__ == "__main__":
    sys.stdout.write(page(described()))
