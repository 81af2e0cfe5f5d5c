"""The reference has every key, command, metric and file that the code has. No MkDocs and no torch is needed."""

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from docs.generate import api, commands, config, metrics, tables
from scalebook.training.base.files.yaml import TOP_KEYS
from scalebook.training.base.workspace import HIDDEN, KNOWN, SETTINGS, Workspace
from scalebook.training.cli.main import COMMANDS
from scalebook.training.engine.rules import CODECS, EXCHANGES, RULES, TOPOLOGIES
from scalebook.training.experiments.description import ClassInfo, Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.known_classes import CALLBACKS, CLASSES
from scalebook.training.experiments.search.keys import HANDLE_HELP, KIND_HELP
from scalebook.training.experiments.search.keys import HELP as SEARCH
from scalebook.training.experiments.search.keys import KEYS as SEARCH_KEYS
from scalebook.training.experiments.search.space import HANDLES, KINDS
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.notebook.bodies import HELP, KEYS
from scalebook.training.search.search_folder import BODY, SearchFolder
from scalebook.training.tracking import names

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def page(description: Description) -> str:
    return config.page(description)


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next one of its level."""
    level = title.partition(" ")[0]
    _, found, rest = page.partition(f"\n{title}\n")
    assert found, title
    return rest.partition(f"\n{level} ")[0]


def test_every_key_of_a_config_is_there(page: str, description: Description) -> None:
    top = section(page, "## Top level")
    assert [key for key in TOP_KEYS if f"| `{key}` |" not in top] == []
    trainer = section(page, "## Trainer")
    assert [field.name for field in description.trainer if f"| `{field.name}` |" not in trainer] == []
    groups = {"Models": description.models, "Data sets": description.data, "Optimizers": description.optimizers,
              "Schedulers": description.lr_schedulers, "Strategies": description.strategies}  # fmt: skip
    for title, infos in groups.items():
        part = section(page, f"## {title}")
        assert [info.class_path for info in infos if f"`{info.class_path}`" not in part] == []
        assert missing(part, infos) == []


def missing(part: str, infos: list[ClassInfo]) -> list[str]:
    """Arguments whose row, with their help, is not in `part`."""
    return [
        f"{info.name}.{field.name}"
        for info in infos
        for field in info.fields
        if not any(line.startswith(f"| `{field.name}` |") for line in part.splitlines())
    ]


def test_every_argument_of_the_parameter_server_is_there_with_its_help(page: str, description: Description) -> None:
    found = description.find("strategies", "AsyncPS")
    assert found is not None
    part = section(page, "## Strategies")
    assert found.fields
    assert [field.name for field in found.fields if field.help and field.help.split("`")[0] not in part] == []
    options = [option for field in found.fields for option in field.options]
    assert {option.config_value for option in options} >= {*RULES, *CODECS}
    assert [option.class_path for option in options if f"`{option.class_path}`" not in part] == []
    assert missing(part, options) == []
    for kinds in config.PARTS.values():
        for kind in kinds:
            summary, helps = config.documented(kind)
            assert summary
            assert set(helps) == set(kind.__dataclass_fields__), kind
            assert [name for name in helps if f"| `{name}` |" not in part] == []


def test_every_key_of_a_cell_is_there(page: str) -> None:
    assert set(HELP) == set(KEYS)
    for kind, keys in KEYS.items():
        assert tuple(HELP[kind]) == keys or set(HELP[kind]) == set(keys), kind
        part = section(page, f"### {kind.capitalize()}")
        assert [key for key in keys if f"| `{key}` |" not in part] == []
    assert tuple(SEARCH) == SEARCH_KEYS
    assert (tuple(KIND_HELP), tuple(HANDLE_HELP)) == (KINDS, HANDLES)


def test_callbacks_that_need_no_trust_are_there(page: str) -> None:
    part = section(page, "### Callbacks")
    names_ = [entry.path for entry in CLASSES if entry.path.startswith(f"{CALLBACKS}.")]
    assert names_
    assert [name for name in names_ if f"`{name}`" not in part] == []


def test_every_command_and_option_is_there() -> None:
    page = commands.page()
    known = commands.parsers()
    assert {*COMMANDS, "ui"} <= set(known)
    assert len(known) > 30
    for name, parser in known.items():
        title = next(f"{level} scalebook {name}" for level in ("##", "###") if f"\n{level} scalebook {name}\n" in page)
        part = section(page, title)
        options = set(parser.takes_value()) - {"-h", "--help"}
        assert [option for option in options if f"`{option}" not in part] == [], name


def test_every_metric_has_a_meaning_and_a_unit() -> None:
    page = metrics.page()
    known = metrics.metrics()
    assert [one.name for one in known if not one.meaning or "Unit: " not in one.meaning] == []
    assert [one.text for one in known if f"| `{one.text}` |" not in page] == []
    assert {names.TRAIN_LOSS, *names.AXES, *names.SHARES, names.STALENESS_MEAN, names.NOISE_SCALE} <= {
        one.text for one in known
    }
    others = [one for one in metrics.documented() if one.name.startswith("TAG_") or one.part == "artifacts"]
    assert len(others) > 50
    assert [one.name for one in others if not one.meaning] == []
    assert [one.text for one in others if one.name != "SPOOL" and f"| `{one.text}` |" not in page] == []


def test_every_parameter_has_a_meaning(description: Description) -> None:
    load = Experiment.read({"model": "MLPClassifier", "data": "Digits"}, description)
    assert set(load.params()) == set(names.PARAMETERS)


def test_the_api_has_the_names_that_programs_import() -> None:
    """By the packages that expose them, each once, with what it is."""
    listed = [(topic.package, name) for topic in api.TOPICS for name in topic.names]
    assert len(listed) > 80
    assert len(set(listed)) == len(listed)
    modules = {package: importlib.import_module(package) for package, _ in listed}
    exposed = {package: getattr(module, "__all__", vars(module)) for package, module in modules.items()}
    assert [(package, name) for package, name in listed if name not in exposed[package]] == []
    assert {name for package, name in listed if package == "scalebook"} == set(exposed["scalebook"])
    index = api.page()
    assert [row for row in index.splitlines() if row.startswith("| [") and row.endswith("|  |")] == []
    for path, page in api.pages().items():
        (topic,) = [topic for topic in api.TOPICS if path == f"reference/{topic.path}"]
        assert re.findall(r"^::: (\S+)$", page, re.M) == [f"{topic.package}.{name}" for name in topic.names]
        assert f"({topic.path})" in index


def test_every_rule_codec_and_the_like_is_in_the_api() -> None:
    kinds: dict[str, Mapping[str, type]] = {
        "Rules": RULES,
        "Codecs": CODECS,
        "Exchanges": EXCHANGES,
        "Topologies": TOPOLOGIES,
    }
    for title, known in kinds.items():
        (topic,) = [topic for topic in api.TOPICS if topic.title == title]
        assert {kind.__name__ for kind in known.values()} <= set(topic.names)


def test_each_file_of_figures_has_its_table() -> None:
    assert {path.stem for path in tables.FIGURES.glob("*.json")} | {tables.RELIABILITY.stem} == set(tables.TABLES)
    placed = tables.placed("a\n\n<!-- table: published-servers -->\n\nb")
    assert placed.startswith("a\n\n`python -m tests.published servers`.")
    assert "100 GPUs | 56 |" in tables.published_servers()
    assert len([line for line in tables.published_systems().splitlines() if line.startswith("| ")]) > 60
    assert tables.reliability().count("`python -m ") >= 4
    for found in tables.TABLES.values():
        module = found().partition("python -m ")[2].partition("`")[0].partition(" ")[0]
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    with pytest.raises(KeyError):
        tables.placed("<!-- table: no-such -->")


def files() -> Iterator[str]:
    """Names of files and folders that the code writes into a workspace."""
    workspace = Workspace(Path("/w"))
    yield from (SETTINGS, HIDDEN, *KNOWN, BODY, names.SPOOL)
    yield from (path.name for path in (workspace.jobs, workspace.studies, workspace.cache, workspace.history,
                                       workspace.artifacts, workspace.database))  # fmt: skip
    yield from [*JobFolder.FILES.values(), *SearchFolder.FILES.values()]
    job, search = JobFolder(Path("/w/j")), SearchFolder(Path("/w/s"))
    yield from (path.name for path in (job.config, job.cut, job.curve, job.unrecorded, job.log, job.stop_file))
    yield from (search.lock.name, search.given_points.name)
    yield from (one.text for one in metrics.documented() if one.part == "artifacts")
    for place in FILE_NAMES:
        module, _, constant = place.rpartition(".")
        yield getattr(importlib.import_module(module), constant)


FILE_NAMES = (
    "scalebook.app.serving.addresses.FILE",
    "scalebook.app.serving.addresses.LOCK",
    "scalebook.app.serving.mlflow_server.MLFLOW_LOG",
    "scalebook.app.serving.page_server.PAGES_LOG",
    "scalebook.training.jobs.begin_request.ANSWER",
    "scalebook.training.jobs.begin_request.ASKED",
    "scalebook.training.jobs.begin_request.PARTS",
    "scalebook.training.cluster.cluster_spool.REMOTE",
    "scalebook.training.cluster.outgoing_files.MARK",
    "scalebook.training.jobs.gpu_allocation.LOCK",
    "scalebook.training.tracking.run_start.SUBMISSIONS",
    "scalebook.training.jobs.supervisor_handle.LOCK",
    "scalebook.training.jobs.supervisor_handle.LOG",
    "scalebook.training.cluster.mlflow_relay.APPLIED",
    "scalebook.training.tracking.spool.FILES",
    "scalebook.training.tracking.spool.LINES",
    "scalebook.training.base.trust.MARK",
    "scalebook.training.base.trust.SIGNATURE",
)
"""Constants that are names of files."""


def test_every_file_of_a_workspace_is_there() -> None:
    text = (REFERENCE / "files.md").read_text(encoding="utf-8")
    found = set(files())
    assert len(found) > 50
    assert [name for name in sorted(found) if name not in text] == []


def test_the_index_lists_every_page_of_the_reference() -> None:
    index = (REFERENCE / "index.md").read_text(encoding="utf-8")
    committed = {path.name for path in REFERENCE.glob("*.md")} - {"index.md"}
    made = {"config.md", "cli.md", "api.md", "metrics.md"}
    assert committed == {"files.md", "glossary.md", "refusals.md"}
    assert [name for name in committed | made if f"({name})" not in index] == []
