"""`reference/api.md`, the names that programs import, and a page in `reference/api/` for each strategy and topic.

The pages are directives of mkdocstrings, which reads signatures and docstrings without importing anything.
"""

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

from .markdown import table, words

ROOT: Final = Path(__file__).resolve().parents[2]
TITLE: Final = """# Python API

What programs may import, by the names that they import. [Configuration](config.md) has the same arguments as configs
write them. For a Trainer of the package `pytorch_lightning`, import the strategies from `scalebook.pytorch_lightning`.
In Python, `help(scalebook.AsyncPS)` prints arguments and methods.

What is stable: [Reference](index.md#stability).

"""
OPTIONS: Final = "{heading_level: 2, show_root_heading: true, show_root_full_path: true}"


class Topic(NamedTuple):
    """A page, with what it documents."""

    title: str
    about: str
    package: str
    """Where programs import the names from."""
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """Below docs/reference/."""
        return f"api/{self.title.replace(' ', '-').lower()}.md"


ENGINE: Final = "scalebook.training.engine"
RULES: Final = f"{ENGINE}.rules"
ZOO: Final = "scalebook.training.zoo"
TOPICS: Final = (
    *(
        Topic(name, "A strategy of a Lightning Trainer.", "scalebook", (name,))
        for name in ("AsyncPS", "DDP", "Peers", "ModelParallel")
    ),
    Topic("Rules", "What the parameter server does with a gradient. A custom rule derives from `Rule`.", RULES,
          ("Rule", "Arrival", "View", "Async", "Bounded", "Softsync", "Sync")),
    Topic("Damping", "What is done about staleness. A custom damping derives from `Damping`.", RULES,
          ("Damping", "DelayCompensation", "DropAbove", "Inverse", "NoDamping")),
    Topic("Codecs", "How gradients and parameters are compressed. A custom codec derives from `Codec`.", RULES,
          ("Codec", "Part", "Bf16", "Fp16", "Fp32", "Int8", "PowerSgd", "Qsgd", "RandomK", "Sign", "TopK")),
    Topic("Local steps", "When workers communicate.", RULES,
          ("Local", "Communication", "DiLoCo", "Downpour", "Elastic", "LocalSGD", "NoLocalSteps", "Significance")),
    Topic("Exchanges", "How peers average their parameters. A custom exchange derives from `PeerExchange`.", RULES,
          ("PeerExchange", "AdPsgd", "DPsgd", "Gossip", "Sgp")),
    Topic("Topologies", "Which peers exchange with each other. A custom topology derives from `Topology`.", RULES,
          ("Topology", "Bipartite", "Complete", "Exponential", "OnePeerExponential", "Ring", "Torus")),
    Topic("Clock", "How long everything takes for virtual workers.", RULES,
          ("ClockSettings", "Distribution", "Link", "Death", "MachineGroup")),
    Topic("Limits", "How often workers restart, and how many there may be.", RULES, ("Limits", "WorkerRange")),
    Topic("Parameter server", "The engine without Lightning.", ENGINE,
          ("SharedRun", "Settings", "Clip", "HostName", "join", "serve", "Joined", "Client", "WrittenError", "Kernel",
           "finite")),
    Topic("Pushes", "What `Client.push` and `Client.pull` return.", f"{ENGINE}.worker.worker_end",
          ("PushResult", "Snapshot")),
    Topic("Measures", "What the parameter server counts and measures.", f"{ENGINE}.coordination.measures",
          ("Counts", "PushMeasures", "StalenessHistogram", "WorkerTimes")),
    Topic("Models", "LightningModules, and base classes for models of images.", f"{ZOO}.models",
          ("MLPClassifier", "ConvClassifier", "PixelCNN", "Ranker", "Translator", "Classifier", "ImageModel")),
    Topic("Data", "LightningDataModules, and base classes for custom ones.", f"{ZOO}.data",
          ("Dataset", "Digits", "Docstrings", "Messages", "ParallelText", "PhotoPatches", "ImageDataModule",
           "ImageSpec", "LabelledImages", "DataError")),
    Topic("Optimizers", "Optimizers for large batches.", f"{ZOO}.optimizers", ("LAMB", "LARS")),
    Topic("Callbacks", "For a script's own Trainer; a recorded run has them, and more, by itself.",
          "scalebook.training.callbacks", ("DivergenceGuard", "GpuShare", "Pictures", "ScaledRates", "Threads")),
)  # fmt: skip


def pages() -> dict[str, str]:
    """One for each topic, by its path below docs/."""
    return {f"reference/{topic.path}": _page(topic) for topic in TOPICS}


def _page(topic: Topic) -> str:
    directives = (f"::: {topic.package}.{name}\n    options: {OPTIONS}\n\n" for name in topic.names)
    return f"# {topic.title}\n\n{topic.about}\n\n{''.join(directives)}"


def page(linked: bool = True) -> str:
    """All names, each with the first sentence of its docstring; `linked` to the pages of the topics."""
    return TITLE + "".join(_names(topic, linked) for topic in TOPICS)


def _names(topic: Topic, linked: bool) -> str:
    rows = []
    for name in topic.names:
        shown = f"`{topic.package}.{name}`" if topic.package == "scalebook" else f"`{name}`"
        rows.append((f"[{shown}]({topic.path})" if linked else shown, words(_first_sentence(topic.package, name))))
    place = "" if topic.package == "scalebook" else f" From `{topic.package}`."
    return f"## {topic.title}\n\n{topic.about}{place}\n\n{table(('name', 'what it is'), rows)}"


def _first_sentence(package: str, name: str) -> str:
    """Of the docstring; of an alias its value. KeyError for a name that the package does not expose."""
    module = package
    while (file := _file(module)).name == "__init__.py":
        module = _homes(file)[name]
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            paragraph = (ast.get_docstring(node) or "").partition("\n\n")[0]
            return re.split(r"(?<=[.?])\s", " ".join(paragraph.split()), maxsplit=1)[0]
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return f"`{ast.unparse(node.value)}`"
    raise KeyError(f"{module} has no {name}")


def _homes(init: Path) -> dict[str, str]:
    """By name, the module that a package imports it from."""
    imports = [
        node for node in ast.walk(ast.parse(init.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def _file(module: str) -> Path:
    """Of a module; the `__init__` of a package."""
    place = ROOT / module.partition(".")[2].replace(".", "/")
    if module == "scalebook":
        place = ROOT / "scalebook" if (ROOT / "scalebook").is_dir() else ROOT
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
