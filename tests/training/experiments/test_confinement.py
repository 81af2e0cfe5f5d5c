"""What a config of a folder that is not trusted may do: name harmless classes, write within the workspace."""

import ast
import importlib
import inspect
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scalebook.training
from scalebook.training.base import trust
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments import confinement
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.confinement import ALLOWED, NAMES, PATHS, Confinement
from scalebook.training.experiments.description import GROUPS, Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.former_arguments import WRITTEN_OUT
from scalebook.training.experiments.known_classes import CLASSES, ours
from scalebook.training.experiments.validation import validate
from scalebook.training.jobs import job_requests
from scalebook.training.search import search_requests
from tests.training.runs import ASYNC, config

pytestmark = pytest.mark.long

OURS = "scalebook.training.callbacks.job_files"
LAST = {"class_path": f"{OURS}.LastCheckpoint", "init_args": {"folder": "/tmp/elsewhere"}}
LAMBDA = {"class_path": "lightning.pytorch.callbacks.LambdaCallback", "init_args": {}}


@pytest.mark.parametrize(
    ("trainer", "key"),
    [
        ({"callbacks": [LAMBDA]}, "trainer.callbacks.0.class_path"),
        ({"callbacks": ["LambdaCallback"]}, "trainer.callbacks.0"),
        ({"callbacks": {"class_path": "LambdaCallback"}}, "trainer.callbacks.class_path"),
        ({"callbacks": "a_module_of_mine.Callback"}, "trainer.callbacks"),
        ({"logger": {"class_path": "lightning.pytorch.loggers.MLFlowLogger"}}, "trainer.logger.class_path"),
        ({"profiler": {"class_path": "os.system"}}, "trainer.profiler.class_path"),
        ({"plugins": ["x.Y"]}, "trainer.plugins.0"),
        ({"callbacks": [LAST]}, "trainer.callbacks.0.class_path"),
        ({"callbacks": [{"class_path": f"{OURS}.ModelPruning"}]}, "trainer.callbacks.0.class_path"),
        (
            {"callbacks": [{"class_path": "ThroughputMonitor", "init_args": {"batch_size_fn": "os.system"}}]},
            "trainer.callbacks.0.init_args.batch_size_fn",
        ),
    ],
)
def test_untrusted_configs_name_harmless_classes_alone(
    trainer: dict[str, Any], key: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(**trainer)
    with pytest.raises(ConfigError, match=r"which can be used only in a folder that you trust.*--trust") as caught:
        job_requests.submit(workspace, Experiment.read(given, describe(workspace)), seeds=[1])
    assert caught.value.problem.key == key
    monkeypatch.setattr(job_requests, "require", lambda *_, **__: None)  # as if it had got past the validation
    (job,) = job_requests.submit(workspace, Experiment.read(given, describe(workspace)), seeds=[1], start=False)
    assert run_job(job.path) == 2
    result = job.result()
    assert result is not None
    assert "which can be used only in a folder that you trust" in result.cause


@pytest.mark.parametrize("strategy", ["auto", ASYNC], ids=["single", "AsyncPS"])
def test_a_job_that_version_0_1_left_runs_is_resumed_and_run_again(
    strategy: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has class paths of then, and all defaults of then written out, in a folder that is not trusted."""
    monkeypatch.setattr(job_requests, "ensure", lambda *_: None)
    (job,) = job_requests.submit(workspace, Experiment.read(config(strategy), describe(workspace)), seeds=[1])
    content = yaml.load(job.config.read_text(encoding="utf-8"))
    if strategy == ASYNC:
        arguments = content["trainer"]["strategy"]["init_args"]
        del arguments["limits"]
        arguments |= WRITTEN_OUT
    text, moved = re.subn(r"scalebook[.a-z_]+\.([A-Z]\w+)", r"scalebook.training.strategies.\1", yaml.dump(content))
    assert moved >= 2
    job.config.write_text(text, encoding="utf-8")
    trust.sign(job.path, job.id, trust.JOB)
    assert run_job(job.path) == 0, job.tail()
    for submitted in (
        job_requests.resume(workspace, job, describe(workspace)),
        job_requests.again(workspace, job, describe(workspace)),
    ):
        assert "scalebook.training.zoo.models.MLPClassifier" in submitted.config.read_text(encoding="utf-8")
        assert "overlap: false" not in submitted.config.read_text(encoding="utf-8")


def test_whatever_a_form_offers_may_be_named_without_trust(description: Description) -> None:
    offered = [info for group in GROUPS for info in getattr(description, group)]
    assert len(offered) > 35
    for info in offered:
        assert not Confinement(
            {"optimizer": info.class_path, "model": {"class_path": info.class_path}}
        ).class_problems(), info.name


def test_a_check_judges_the_config_that_will_run(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short name passes only if the class that it stands for may be named."""
    given = {**config(), "optimizer": {"class_path": "SparseAdam", "init_args": {"lr": 0.1}}}
    described = describe(workspace)
    assert not Confinement(Experiment(given, described).to_run()).class_problems()
    refused = frozenset(ALLOWED - {"torch.optim.SparseAdam"})
    monkeypatch.setattr(confinement, "ALLOWED", refused)
    (found,) = [problem for problem in validate(Experiment.read(given, described)) if problem.severity == "error"]
    assert (found.key, found.message.split(",")[0]) == ("optimizer.class_path", "is torch.optim.SparseAdam")


HARMLESS: list[dict[str, Any]] = [
    {"callbacks": [{"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val/loss"}}]},
    {"callbacks": ["LearningRateMonitor"]},
    {"profiler": "simple", "logger": False},
    {"callbacks": [{"class_path": "ModelCheckpoint", "init_args": {"dirpath": "kept", "filename": "{epoch}"}}]},
]


@pytest.mark.parametrize("trainer", HARMLESS, ids=str)
def test_harmless_ones_need_no_trust(trainer: dict[str, Any], workspace: Workspace) -> None:
    job_requests.submit(workspace, Experiment.read(config(**trainer), describe(workspace)), seeds=[1], start=False)


def checkpoint(**told: str) -> dict[str, Any]:
    return {"callbacks": [{"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": told}]}


@pytest.mark.parametrize(
    ("trainer", "key"),
    [
        (checkpoint(dirpath="/tmp/elsewhere"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="a/../../b"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="~/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="~nobody-of-this-name/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="s3://bucket/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="link/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(filename="../../x"), "trainer.callbacks.0.init_args.filename"),
        ({"default_root_dir": "/tmp"}, "trainer.default_root_dir"),
        ({"logger": {"class_path": "CSVLogger", "init_args": {"save_dir": ".."}}}, "trainer.logger.init_args.save_dir"),
        (
            {"logger": [{"class_path": "CSVLogger", "init_args": {"save_dir": ".", "name": "../x"}}]},
            "trainer.logger.0.init_args.name",
        ),
        (
            {"profiler": {"class_path": "SimpleProfiler", "init_args": {"dirpath": "/tmp"}}},
            "trainer.profiler.init_args.dirpath",
        ),
    ],
)
def test_runs_write_within_the_workspace(
    trainer: dict[str, Any], key: str, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (workspace.root / "link").symlink_to(tmp_path_factory.mktemp("outside"))
    with pytest.raises(ConfigError, match=r"outside the workspace .*--trust") as caught:
        job_requests.submit(workspace, Experiment.read(config(**trainer), describe(workspace)), seeds=[1], start=False)
    assert caught.value.problem.key == key
    trust.trust(workspace)
    job_requests.submit(workspace, Experiment.read(config(**trainer), describe(workspace)), seeds=[1], start=False)


def test_data_is_downloaded_in_a_trusted_folder_alone(workspace: Workspace) -> None:
    given = {**config(), "data": {"class_path": "Dataset", "init_args": {"hub": "ylecun/mnist"}}}
    with pytest.raises(ConfigError, match=r"downloads from the Hub only in a folder that you trust.*--trust") as caught:
        job_requests.submit(workspace, Experiment.read(given, describe(workspace)), seeds=[1])
    assert caught.value.problem.key == "data.init_args.hub"


def spelled(callback: Any) -> list[dict[str, Any]]:
    """Configs that give the Trainer this callback."""
    text = json.dumps(callback)
    return [
        {"trainer": {"callbacks": [callback]}},
        {"trainer": {"callbacks": callback}},
        {"trainer": {"callbacks+": callback}},
        {"trainer": {"callbacks": ["LearningRateMonitor", callback]}},
        {"trainer": {"callbacks": text}},
        {"trainer": {"callbacks": f"[{text}]"}},
        {"trainer": {"callbacks": [text]}},
        {"trainer.callbacks": [callback]},
        {"trainer.callbacks+": callback},
        {"trainer": json.dumps({"callbacks": [callback]})},
    ]


@pytest.mark.parametrize(
    "name",
    [
        *(f"{OURS}.{name}" for name in ("LastCheckpoint", "Pictures", "PartsRecorder", "Callback", "SummaryWriter")),
        "scalebook.training.callbacks.push_recorder.PushRecorder",
        "scalebook.training.callbacks.job_files.LastCheckpoint",  # as version 0.1 called it
        "scalebook.training.cli.lightning_cli.ModelPruning",
        "scalebook.training.zoo.models.classifiers.L.pytorch.callbacks.ModelPruning",
        "scalebook.training.zoo.models.classifiers.torch.nn.Linear",
        "scalebook.training.zoo.data.module.DataLoader",
        "scalebook.training.zoo.models.classifiers.MLPClassifier.load_from_checkpoint",
        "scalebook.training.engine.rules.codecs.dataclass",
        "scalebook.training.engine.store.server.Server",
        "scalebook.training.zoo...models.MLPClassifier",
        "scalebook.training.zoo.models.\0.MLPClassifier",
        "lightning.pytorch.callbacks.ModelPruning",
        "lightning.pytorch.callbacks.StochasticWeightAveraging",
        "ModelPruning",
        "os.system",
    ],
)
def test_a_class_is_judged_by_where_it_is_defined(name: str) -> None:
    for given in spelled({"class_path": name, "init_args": {"parameter_names": ["weight"]}}):
        assert [problem for problem in Confinement(given).class_problems() if name in problem.message], given
    for key, value in (("callbacks", [name]), ("callbacks", name), ("callbacks+", name)):
        given = {"trainer": {key: value}}
        assert Confinement(given).class_problems(), given


def test_library_classes_that_our_modules_import_are_not_ours() -> None:
    """Whatever any module of ours has by a name, and does not define as a class."""
    top = Path(scalebook.training.__file__).parent
    tried = 0
    for path in sorted(top.rglob("*.py")):
        module = f"scalebook.training.{'.'.join(path.relative_to(top).with_suffix('').parts)}".removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("scalebook"):
                names = [alias.asname or alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.FunctionDef):
                names = [node.name]
            for name in names:
                tried += 1
                profiler = {"class_path": f"{module}.{name}"}
                if ours(f"{module}.{name}"):  # our class of that name is meant, but not within a text that is YAML
                    assert not Confinement({"trainer": {"profiler": profiler}}).class_problems()
                    assert Confinement({"trainer": {"profiler": json.dumps(profiler)}}).class_problems(), profiler
                else:
                    assert Confinement({"trainer": {"profiler": profiler}}).class_problems(), profiler
    assert tried > 5000


@pytest.mark.parametrize("argument", ["init_args", "dict_kwargs"])
@pytest.mark.parametrize(
    ("where", "name", "key"),
    [
        ("callbacks", "ThroughputMonitor", "batch_size_fn"),
        ("callbacks", "EMAWeightAveraging", "avg_fn"),
        ("strategy", "lightning.pytorch.strategies.DDPStrategy", "ddp_comm_hook"),
        ("strategy", "scalebook.training.lightning.DDP", "ddp_comm_hook"),
        ("strategy", "scalebook.training.lightning.AsyncPS", "rule"),
    ],
)
def test_no_argument_names_a_function_of_a_library(argument: str, where: str, name: str, key: str) -> None:
    for text in ("os.system", "subprocess.check_call", "torch.hub.load", '"os.system"', "lightning.pytorch.Trainer"):
        value = {"class_path": name, argument: {key: text}}
        for given in (
            {"trainer": {where: value}},
            {"trainer": {where: json.dumps(value)}},
            {f"trainer.{where}": value},
        ):
            assert Confinement(given).class_problems(), given
    allowed = {"class_path": "scalebook.training.lightning.AsyncPS", argument: {"rule": "bounded"}}
    assert not Confinement({"trainer": {"strategy": allowed}}).class_problems()


@pytest.mark.parametrize("key", ["folder", "dirpath", "save_dir"])
def test_paths_are_found_in_every_spelling(key: str, tmp_path: Path) -> None:
    for argument in ("init_args", "dict_kwargs"):
        for value in ("/tmp/elsewhere", "a/../../b", "~/x", "s3://bucket/x", '"/tmp/elsewhere"'):
            for given in spelled({"class_path": "ModelCheckpoint", argument: {key: value}}):
                assert Confinement(given).path_problems(tmp_path), given
            for given in spelled({"class_path": "ModelCheckpoint", argument: {"more": [{key: value}]}}):
                assert Confinement(given).path_problems(tmp_path), given


def test_a_point_of_a_search_is_confined_too(workspace: Workspace) -> None:
    description = describe(workspace)
    for name, value in (("trainer.callbacks", [LAST]), ("trainer.default_root_dir", "/tmp/elsewhere")):
        body = {
            "config": config(),
            "objective": "val/loss",
            "space": {name: {"values": [value]}, "workers": {"grid": [1]}},
        }
        with pytest.raises(ConfigError, match=r"only in a folder that you trust|outside the workspace"):
            search_requests.start(workspace, body, None, description=description, name="s")


TEXTS = (
    "attr_name", "batch_arg_name", "device", "duration", "interval", "logging_interval", "mode", "monitor",
    "process_group_backend", "save_last",
    "features", "hub", "label", "path", "revision", "run", "split", "subset", "validation",  # of data sets and clocks
    "defaults", "generator", "multiprocessing_context", "pin_memory_device",  # of what no config can name as its data
    "words", "gradients_per_update", "computed_per_update", "use",
)  # fmt: skip
"""Arguments that are words; what data sets name is read, and fetched from the Hub only where the folder is trusted."""
REFUSED_BY_VALUE = (
    "args", "batch_size_fn", "checkpoint_io", "cluster_environment", "console_kwargs", "ddp_comm_hook",
    "ddp_comm_state", "ddp_comm_wrapper", "kwargs", "length_fn", "params", "precision_plugin", "summarize_kwargs",
)  # fmt: skip
"""Those that take functions, classes or anything: a text among them that can be imported is refused."""


def named_classes() -> Iterator[type]:
    """All classes, of ours and of libraries, that a config of an untrusted folder may name."""
    for entry in CLASSES:
        yield getattr(importlib.import_module(entry.path.removesuffix(f".{entry.name}")), entry.name)


def test_every_argument_of_a_class_that_may_be_named_is_known_to_be_harmless() -> None:
    """Whoever adds a class, or an argument, decides: a path belongs to PATHS or NAMES, a function is refused by its
    value, and whatever else takes a text is listed here."""
    seen: dict[str, set[str]] = {}
    for kind in set(named_classes()):
        initializer: Any = kind.__init__  # type: ignore[misc]  # that of this class is meant
        for parameter in inspect.signature(initializer).parameters.values():
            said = str(parameter.annotation)
            texts = re.search(r"\b(str|Path|PathLike|Callable|Any|type\[|object|_empty)\b", said)
            if texts and parameter.name not in ("self", *PATHS, *NAMES, *TEXTS, *REFUSED_BY_VALUE):
                seen.setdefault(parameter.name, set()).add(f"{kind.__module__}.{kind.__qualname__}: {said}")
    assert seen == {}, "\n".join(map(str, seen.items()))


@pytest.mark.parametrize(
    ("seed", "configs"), [(7, 60), *(pytest.param(seed, 500, marks=pytest.mark.thorough) for seed in (8, 9, 10, 11))]
)
def test_odd_configs_are_judged_without_a_traceback(seed: int, configs: int, tmp_path: Path) -> None:
    """Random trees of hostile texts: each text that can be imported is found wherever it is below the trainer, except
    under the keys of folders and file names, whose values are paths."""
    draw = random.Random(seed)
    texts = [
        "__main__.x",
        "os.system",
        "{",
        "a: [",
        "&a [*a]",
        "- - -",
        "\0.x",
        "x.\ud800",
        "é.x",
        "{class_path: os.system}",
    ]
    keys = [
        "callbacks",
        "callbacks+",
        "strategy",
        "init_args",
        "dict_kwargs",
        "class_path",
        "a.b",
        "",
        "0",
        "folder",
        "name",
    ]

    def tree(depth: int) -> Any:
        kind = draw.randrange(4) if depth else 3
        if kind == 0:
            return {draw.choice(keys): tree(depth - 1) for _ in range(3)}
        if kind == 1:
            return [tree(depth - 1) for _ in range(3)]
        return draw.choice([*texts, None, 1, float("nan"), True]) if kind == 3 else json.dumps(tree(depth - 1))

    for _ in range(configs):
        given = {draw.choice(["trainer", "optimizer", "model", "trainer.callbacks"]): tree(5)}
        Confinement(given).path_problems(tmp_path)
        problems = Confinement(given).class_problems()
        if "os.system" in json.dumps(given) and not re.search('"(folder|name)', json.dumps(given)):
            assert any("os.system" in problem.message for problem in problems), given
