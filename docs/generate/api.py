"""`reference/api.md`: the public classes and functions, for mkdocstrings, which reads them without importing them."""

import ast
import sys
from pathlib import Path
from typing import Final

from docs.generate.markdown import NOTE

ROOT: Final = Path(__file__).resolve().parents[2]
TITLE: Final = """# Python API

What programs of your own may import. [Config](config.md) has the same arguments as a config writes them.

"""
PARTS: Final = {
    "Strategies": (
        "scalebook.training.lightning",
        (
            "`from scalebook import AsyncPS, DDP`: strategies of a Lightning Trainer. For a Trainer of the package "
            "`pytorch_lightning` import them from `scalebook.pytorch_lightning`."
        ),
    ),
    "Rules": (
        "scalebook.training.engine.rules.update_rules",
        "What becomes of a gradient. A rule of your own derives from `Rule`.",
    ),
    "Damping": (
        "scalebook.training.engine.rules.damping",
        "What staleness does. A damping of your own derives from `Damping`.",
    ),
    "Codecs": (
        "scalebook.training.engine.rules.codecs",
        "How gradients and parameters travel. A codec of your own derives from `Codec`.",
    ),
    "Local steps": ("scalebook.training.engine.rules.local_steps", "When workers communicate."),
    "Clock": ("scalebook.training.engine.rules.clock_settings", "How long everything takes for virtual workers."),
    "Limits": ("scalebook.training.engine.rules.run_limits", "How often workers restart, and how many there may be."),
    "Parameter server": ("scalebook.training.engine", "The engine without Lightning."),
    "Models": ("scalebook.training.zoo.models", "LightningModules, and the base classes of models of images."),
    "Data": ("scalebook.training.zoo.data", "LightningDataModules, and what one of your own can build on."),
    "Optimizers": ("scalebook.training.zoo.optimizers", "Optimizers for large batches."),
    "Callbacks": (
        "scalebook.training.callbacks",
        "What every recorded run has beside the callbacks of its config.",
    ),
}
"""By title: a module or a function, and what it is for."""


FOR_PROGRAMS: Final = {
    "scalebook.training.lightning": ("AsyncPS", "DDP", "ModelParallel", "Peers"),
    "scalebook.training.engine": (
        "Client", "Clip", "Counts", "HostName", "Joined", "PushMeasures", "PushResult", "Settings", "SharedRun",
        "Snapshot", "StalenessHistogram", "WorkerTimes", "WrittenError", "join", "serve",
    ),
}  # fmt: skip
"""Of packages whose interface is for other packages of Scalebook too: what programs of your own use."""


OPTIONS: Final = "{heading_level: 3, show_root_heading: true, show_source: false, members_order: source}"


def directives() -> dict[str, list[str]]:
    """By title, the dotted names of what is public."""
    return {title: [f"{home}.{name}" for home, name in public(module)] for title, (module, _) in PARTS.items()}


def public(path: str) -> list[tuple[str, str]]:
    """What a module offers, each with the module that defines it: its `__all__`, else its classes; of
    `callbacks` the Lightning callbacks in its modules. A function is itself."""
    place = ROOT / path.removeprefix("scalebook.").replace(".", "/")
    file = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    if not file.is_file():
        module, _, name = path.rpartition(".")
        return [(module, name)]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if (offered := _all(tree)) and not path.endswith(".callbacks"):
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        homes = {alias.name: node.module or "" for node in imports for alias in node.names}
        chosen = FOR_PROGRAMS.get(path, tuple(offered))
        return [(homes.get(name, path), name) for name in offered if name in chosen]
    if file.stem != "__init__":
        return [(path, name) for name in _classes(file)]
    inner = sorted(one for one in place.glob("*.py") if one != file)
    return [(f"{path}.{one.stem}", name) for one in inner for name in _classes(one, "Callback")]


def _all(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def _classes(file: Path, base: str = "") -> list[str]:
    kinds = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    return [
        kind.name
        for kind in kinds
        if not kind.name.startswith("_")
        and ast.get_docstring(kind)
        and (not base or base in [getattr(one, "id", "") for one in kind.bases])
    ]


def page() -> str:
    """The page."""
    known = directives()
    parts = []
    for title, (_, meaning) in PARTS.items():
        listed = "".join(f"::: {name}\n    options: {OPTIONS}\n\n" for name in known[title])
        parts.append(f"## {title}\n\n{meaning}\n\n{listed}")
    return NOTE + TITLE + "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
