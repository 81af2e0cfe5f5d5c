"""Who may know whom: the arrows of the design, held against the code's own imports."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BROWSER_MAY_USE = tuple(
    f"scalebook.training.{name}"
    for name in (
        "asking.answer", "asking.answer_bars", "asking.answer_export", "asking.answer_rows", "asking.ask_folder",
        "asking.asked_cells",
        "asking.previews", "asking.recipes", "asking.sizes", "base", "cluster.ray_executor",
        "engine.coordination.measures",
        "engine.rules", "experiments", "jobs", "notebook", "planner.answers",
        "planner.question_folder", "pricing.links", "pricing.profile",
        "pricing.part_record", "pricing.quantities", "planner.question", "planner.reliability",
        "planner.time_to_target", "planner.answer_words", "planner.split_words", "search", "tracking.curves",
        "tracking.directions", "tracking.estimates", "tracking.names",
        "tracking.moved_workspace", "tracking.notebook_runs", "tracking.notes", "tracking.own_metrics",
        "tracking.run_reader", "tracking.schema",
        "tracking.worker_figures",
    )
)  # fmt: skip
NEED_TORCH = ("scalebook.training.experiments.introspect",)
"""What reads signatures: in rooms that the browser side uses, and not for it."""
LAYERS = {
    "training": [
        "lazy", "base", "tracking", "engine", "zoo", "experiments", "jobs", "search", "pricing", "lightning",
        "callbacks", "cluster", "notebook", "supervisor", "planner", "asking", "cli",
    ],
    "training/engine": [
        "rules", "codecs", "hyper", "worker_clock", "memory", "trace", "coordination", "store", "worker", "sim", "net",
        "launch", "served_run",
    ],
    "training/lightning": [
        "package", "empty_hooks", "random_streams", "steps", "worker_role", "tied_weights", "portable_checkpoint",
        "buffer_rows", "buffers", "arguments", "run_figures", "processes", "tuners", "data", "process_group",
        "async_ps", "ddp", "model_parallel",
    ],
    "training/zoo": ["shuffle", "skew", "data", "optimizers", "models"],
    "training/search": ["study", "search_folder", "search_requests", "map", "driver"],
    "app": [
        "navigation", "state", "serving", "shared", "help", "runs", "one_run", "compose", "search", "search_setup",
        "compare", "plan", "ask", "notebook",
    ],
}  # fmt: skip
"""The rooms of each house, from the ground up: a room knows only those before it."""
DATA = (
    "data", "records", "run_query", "trial_data", "shared.words", "shared.form", "shared.notebooks", "shared.drafts",
    "shared.links",
)  # fmt: skip
"""Of the browser side what pages read and compute: plain Python."""
FIGURES = ("answer_charts", "trial_style", "ratio_chart", "learning_curves", "trial_charts", "trial_map")
"""Charts as figures, which nothing has drawn yet."""
PARTS = (*DATA, *FIGURES, "widgets", "fields", "table", "workers", "shared.html", "shared.charts", "shared.style")
"""What is drawn from what it is given, and returns what the person wants; besides, it knows `state`, for clicks."""
TRAINERS_MAY_USE = tuple(
    f"scalebook.training.engine.{name}"
    for name in (
        "rules", "codecs.coder", "coordination.measures", "served_run", "launch", "memory.device", "memory.uncopied",
        "worker.worker_end",
    )
)  # fmt: skip
"""Of the parameter server: its policy, codecs and measures, the worker's end, who gives one, who waits for a GPU, and
what cannot be copied."""
SIMULATED = re.compile("virtual|played", re.IGNORECASE)
OTHER_WORDS = 55
"""Names with `virtual` or `played` in them, and the host's name where it is written, outside of `engine/sim`."""
COME_WITH_TORCH_AND_LIGHTNING = (
    "torch", "lightning", "lightning_fabric", "lightning_utilities", "pytorch_lightning", "torchmetrics", "numpy",
    "typing_extensions",
)  # fmt: skip
STAND_ALONE = ("scalebook.training.engine", "scalebook.training.lightning", "scalebook.training.zoo")
"""Packages that others use too: what they expose is for scripts and configs."""
HEAVY = ("torch", "lightning", "jsonargparse")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@dataclass(frozen=True)
class Source:
    """What the tests look for in a file. Each file is parsed once for all of them."""

    written: list[str]
    """The dotted names of all imports, as they are written."""
    imported: list[str]
    """The dotted names, each where it is defined, anywhere in the file, but for those for type checking only."""
    imported_for_types: list[str]
    loaded: list[str]
    """Of `imported` what the file's own import imports: not what stands within functions."""
    docstring: str
    classes: list[str]
    """Public ones, of the module itself."""
    functions: list[tuple[str, int, int]]
    """Name, first and number of lines, of those within others too."""
    listed: list[str]
    """What `__all__` holds."""


@cache
def source(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {False: list[str](), True: list[str]()}  # by whether for type checking only
    functions, loaded, written = [], list[str](), list[str]()
    for node, for_types, deferred in _statements(tree, False, False):
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.Import) or node.level == 0, f"{path}: import by full name"
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}{alias.name}" for alias in node.names]
            written += names
            imported[for_types] += map(_defined, names)
            loaded += [] if for_types or deferred else map(_defined, names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1))
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    docstring = ast.get_docstring(tree) or ""
    return Source(written, imported[False], imported[True], loaded, docstring, classes, functions, _listed(tree))


def _defined(name: str) -> str:
    """The dotted name where it is defined, for a name that is imported from a package's interface."""
    package, _, last = name.rpartition(".")
    return interface(package).get(last, name)


@cache
def interface(package: str) -> dict[str, str]:
    """Name -> dotted name where it is defined, of what the `__init__` of one of our packages exposes."""
    path = ROOT.joinpath(*package.split(".")[1:], "__init__.py")
    if not package.startswith("scalebook.training.") or not path.exists():
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    listed = _listed(tree)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names if alias.name in listed
    }


def _statements(node: ast.AST, for_types: bool, deferred: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    """All statements, also those within others, whether they are for type checking only, and whether they stand in a
    function. Expressions hold none."""
    deferred |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        for_types = True
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            yield child, for_types, deferred
            yield from _statements(child, for_types, deferred)


def _listed(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return []


def imports(path: Path, for_types: bool = False) -> list[str]:
    """The dotted names a file imports, anywhere in it; those for type checking only if `for_types`."""
    return source(path).imported + (source(path).imported_for_types if for_types else [])


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_training_knows_no_browser() -> None:
    for path in sources("training"):
        strangers = [name for name in imports(path) if within(name, ("streamlit", "scalebook.app", "scalebook.pages"))]
        assert strangers == [], path


def test_the_browser_side_uses_only_the_light_parts_of_training() -> None:
    for path in sources("app", "pages"):
        names = list(imports(path))
        assert [name for name in names if within(name, HEAVY)] == [], path
        ours = [name for name in names if within(name, ("scalebook.training",))]
        assert [name for name in ours if not within(name, BROWSER_MAY_USE) or within(name, NEED_TORCH)] == [], path


def test_the_parameter_server_stands_alone() -> None:
    for path in sources("training/engine"):
        names = list(imports(path))
        ours = [name for name in names if within(name, ("scalebook",))]
        allowed = ("scalebook.training.engine", "scalebook.training.lazy")
        assert [name for name in ours if not within(name, allowed)] == [], path
        assert [name for name in names if within(name, ("lightning", "mlflow", "optuna"))] == [], path


@pytest.mark.parametrize("room", ["lightning", "planner/tuning"])
def test_who_trains_knows_the_worker_s_end_and_nothing_behind_it(room: str) -> None:
    """So that an end over something else than shared memory can take its place. (Its types hide the rest: mypy.)"""
    for path in sources(f"training/{room}"):
        names = [name for name in imports(path) if within(name, ("scalebook.training.engine",))]
        assert [name for name in names if not within(name, TRAINERS_MAY_USE)] == [], path


def test_strategies_need_torch_and_lightning_alone() -> None:
    """In scripts of one's own, and on machines with GPUs, nothing else may be installed."""
    suite = [path for path in sources("tests/gpu") if not path.name.startswith("test_")]
    files = [*sources("training/engine", "training/lightning"), *suite, ROOT / "benchmarks/gpu.py"]
    todo, seen, strangers = files, set[Path](), set[tuple[str, str]]()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in source(path).loaded:
            if (found := _file_of(name)) is not None:
                todo += [found, *(ROOT / p / "__init__.py" for p in found.relative_to(ROOT).parents if p.name)]
            elif name.split(".")[0] not in (*sys.stdlib_module_names, *COME_WITH_TORCH_AND_LIGHTNING):
                strangers.add((_dotted(path), name))
    assert len(seen) > 150
    assert strangers == set()


def _file_of(name: str) -> Path | None:
    """The file of ours that has this dotted name, or in whose module it is; None for what is not ours."""
    parts = name.removeprefix("scalebook.").split(".")
    if parts[0] not in ("training", "app", "tests", "benchmarks"):
        return None
    for length in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:length])
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if path.is_file():
                return path
    return None


def test_the_engine_does_not_know_that_workers_are_simulated() -> None:
    """`launch` decides it; whoever plans without training simulates too. All of them by the public face."""
    for path in sources("training"):
        names = [name for name in source(path).written if within(name, ("scalebook.training.engine.sim",))]
        own = path.relative_to(ROOT / "training")
        if own.parts[:2] in (("engine", "sim"), ("engine", "__init__.py")) or not names:
            continue
        assert str(own) == "engine/launch.py" or own.parts[0] in ("planner", "pricing"), path
        assert [name for name in names if name.count(".") > 4] == [], path


def test_simulated_workers_are_called_so() -> None:
    """Users read "virtual"; in code it has one name. Left are the value itself in configs, tags and forms, and the
    strategy's own names. Of what a person reads, and of docstrings, nothing is counted."""
    left = [
        f"{path}:{token.start[0]} {token.string}"
        for path in sources("training", "app", "pages", "scalebook")
        if SIMULATED.search(text := path.read_text(encoding="utf-8"))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if (token.type == tokenize.NAME and SIMULATED.search(token.string))
        or (token.type == tokenize.STRING and token.string == '"virtual"')
    ]
    assert len([place for place in left if "/engine/sim/" not in place]) <= OTHER_WORDS, left


@pytest.mark.parametrize("house", LAYERS)
def test_a_room_knows_only_the_rooms_below_it(house: str) -> None:
    """So no two of them know each other, by whatever way round."""
    above, package = LAYERS[house], f"scalebook.{house.replace('/', '.')}"
    for path in sources(house):
        own = path.relative_to(ROOT / house).with_suffix("").parts[0]
        for name in imports(path):
            if own == "__init__" or not within(name, (package,)) or name == package:
                continue
            known = name.removeprefix(f"{package}.").split(".")[0]
            if known in source(ROOT / house / "__init__.py").listed:
                continue
            if known in above and own in above:
                assert above.index(known) <= above.index(own), f"{path} imports {name}"
            elif house != "app":
                pytest.fail(f"{path} imports {name}: write where {own} and {known} stand in LAYERS")


def test_packages_know_each_other_by_their_interfaces() -> None:
    """What the `__init__` of a package lists: names, and modules that are public as a whole."""
    past = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("training", "app", "pages", "scalebook")
        for name in source(path).written
        if within(name, ("scalebook.training",)) and not _is_public(name, _dotted(path))
    ]
    assert past == []


def _is_public(name: str, importer: str) -> bool:
    parts = name.split(".")
    if importer.split(".")[:3] == parts[:3] or len(parts) < 3 or parts[2] == "lazy":
        return True
    for at in range(3, len(parts)):
        if not ROOT.joinpath(*parts[1:at]).is_dir():
            return at == len(parts) - 1 and not parts[at].startswith("_")
        if parts[at] not in source(ROOT.joinpath(*parts[1:at], "__init__.py")).listed:
            return False
    return True


def test_a_public_module_is_imported_as_a_module() -> None:
    """So what it defines has one name elsewhere, which says where it is: `trust.may_run`."""
    single = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("training", "app", "pages")
        for name in _outside(path)
        if within(name, ("scalebook.training",)) and ROOT.joinpath(*name.split(".")[1:-1]).with_suffix(".py").is_file()
        if not within(name, ("scalebook.training.lazy",))
    ]
    assert single == []


def test_packages_expose_only_what_others_use() -> None:
    used = {name for path in sources("training", "app", "pages", "scalebook") for name in _outside(path)}
    for path in sources("training"):
        package = _dotted(path).removesuffix(".__init__")
        if path.name != "__init__.py" or within(package, STAND_ALONE) or not _is_public(package, ""):
            continue
        exposed = {f"{package}.{name}" for name in source(path).listed}
        assert sorted(name for name in exposed if not any(within(one, (name,)) for one in used)) == [], package


def _outside(path: Path) -> list[str]:
    own = _dotted(path).split(".")[:3]
    return [name for name in source(path).written if name.split(".")[:3] != own]


RAW_CONFIGS = {
    "YAML": ("training/experiments/command_line.py", "training/notebook/cells.py", "training/notebook/edit.py"),
    "what LightningCLI is given": (
        "training/cli/dry_run.py", "training/cli/fit.py", "training/cli/lightning_cli.py",
        "training/cli/model_making.py", "training/cli/runner.py", "training/experiments/confinement.py",
        "training/experiments/data_paths.py", "training/experiments/former_arguments.py",
        "training/experiments/identity.py", "training/jobs/recorded_clock.py",
    ),
    "the form's draft": ("app/compose/page.py", "app/shared/drafts.py", "app/state.py"),
}  # fmt: skip
"""Where a config is a raw mapping, and why; everything else takes an Experiment."""


def test_a_config_is_parsed_once() -> None:
    raw = re.compile(r"\bconfig: (Mapping|dict)\[str, Any\]")
    files = {
        str(path.relative_to(ROOT))
        for path in sources("training", "app", "pages")
        if raw.search(path.read_text(encoding="utf-8"))
    }
    allowed = {file for named in RAW_CONFIGS.values() for file in named}
    assert sorted(files - allowed) == [], "take an Experiment"
    assert sorted(allowed - files) == [], "these no longer have raw configs: remove them from the list"


def test_no_file_name_occurs_twice_within_a_package_of_training() -> None:
    """The package tells two files of one name apart; the folders within it do not."""
    names = Counter((path.relative_to(ROOT).parts[1], path.name) for path in sources("training"))
    assert [name for name, count in names.items() if count > 1 and not name[1].startswith("__")] == []


def test_a_package_says_what_is_in_it_and_where_to_begin() -> None:
    packages = [path for path in sources("training") if path.name == "__init__.py"]
    assert len(packages) > 30
    without = [path for path in packages if "Begin with" not in source(path).docstring]
    assert [str(path.relative_to(ROOT)) for path in without] == []


NOT_OURS = {"mlflow.py", "my_lab.py", "version.py"}
"""Files that are named and are not ours: in examples, or in a library."""


def test_files_that_are_named_exist() -> None:
    ours = {path.name for path in sources("training", "app", "pages", "scalebook", "tests", "benchmarks", "docs")}
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", *(ROOT / "docs/design").glob("*.md")]
    places = [*pages, *(ROOT / "training").rglob("*.md"), *sources("training", "app", "scalebook")]
    named = re.compile(r"`(?:[\w/]*/)?([a-z_]+\.py)`")
    gone = {(str(path), name) for path in places for name in named.findall(path.read_text(encoding="utf-8"))}
    assert sorted((path, name) for path, name in gone if name not in ours | NOT_OURS) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not for types alone either: what one needs of the other belongs below both."""
    files = {_dotted(path): path for path in sources("training", "app", "pages") if path.name != "__init__.py"}
    known = {}
    for name, path in files.items():
        dotted = set(imports(path, for_types=True))  # of a module, or of what it defines
        known[name] = {one for told in dotted for one in (told, told.rpartition(".")[0]) if one in files}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def _dotted(path: Path) -> str:
    return ".".join(("scalebook", *path.relative_to(ROOT).with_suffix("").parts))


def of_kind(name: str, kinds: tuple[str, ...]) -> bool:
    """Whether a module of the browser side, or something in it, is one of these: `data` of any page, `shared.words`."""
    parts = name.split(".")[2:]
    return any(".".join(parts[i : i + 1 + kind.count(".")]) == kind for kind in kinds for i in (0, 1))


def test_data_of_pages_knows_no_streamlit_and_nothing_that_is_drawn() -> None:
    paths = [path for path in sources("app") if of_kind(_dotted(path), (*DATA, *FIGURES))]
    assert len(paths) > 20
    for path in paths:
        names = list(imports(path))
        assert [name for name in names if within(name, ("streamlit",))] == [], path
        ours = [name for name in names if within(name, ("scalebook.app",)) and not of_kind(name, DATA)]
        assert ours == [] or of_kind(_dotted(path), FIGURES), path


def test_parts_of_pages_build_nothing_that_pages_share() -> None:
    paths = [path for path in sources("app") if of_kind(_dotted(path), PARTS)]
    assert len(paths) > 30
    for path in paths:
        ours = [name for name in imports(path) if within(name, ("scalebook.app",))]
        allowed = ("scalebook.app.navigation", "scalebook.app.state")
        assert [name for name in ours if not of_kind(name, PARTS) and not within(name, allowed)] == [], path


def test_pages_do_not_know_each_other() -> None:
    assert len([path for path in sources("app") if path.stem == "page"]) > 5
    for path in sources("app", "pages"):
        known = [name for name in imports(path) if "page" in name.split(".")[3:]]
        assert known == [] or path.parent.name == "pages", path


def test_ours_is_imported_by_its_full_name() -> None:
    """`training` is a folder of this repository, and somebody else's package anywhere else."""
    for path in sources("training", "app", "pages", "scalebook", "tests", "benchmarks"):
        assert [name for name in imports(path) if within(name, ("training", "app", "pages"))] == [], path


def test_no_two_public_classes_share_a_name() -> None:
    """Whoever reads or searches for a name finds one thing."""
    places: dict[str, list[str]] = {}
    for path in sources("training", "app", "pages", "scalebook"):
        for name in source(path).classes:
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_a_page_is_layout_and_words() -> None:
    assert [path for path in sources("pages") if len(path.read_text(encoding="utf-8").splitlines()) > 80] == []


def test_only_state_touches_session_state_and_only_resources_caches() -> None:
    for path in sources("app", "pages"):
        text = path.read_text(encoding="utf-8")
        assert "session_state" not in text or path.name == "state.py", path
        assert ("cache_resource" not in text and "cache_data" not in text) or path.name == "resources.py", path


def test_no_function_is_longer_than_80_lines() -> None:
    long = [
        f"{path}:{line} {name}"
        for path in sources("training", "app", "pages", "benchmarks")
        for name, line, count in source(path).functions
        if count > 80
    ]
    assert long == []


def test_the_light_parts_load_no_torch() -> None:
    """Imported for real, in a process of its own: what the browser side loads must not drag torch in."""
    names = (
        ".".join(("scalebook", *path.relative_to(ROOT).with_suffix("").parts)) for path in sources("training", "app")
    )
    modules = [
        name.removesuffix(".__init__")
        for name in names
        if within(name, (*BROWSER_MAY_USE, "scalebook.app"))
        and not within(name, NEED_TORCH)
        and name.rpartition(".")[2] not in {"main", "__main__"}
    ]
    assert len(modules) > 100
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {[*HEAVY, 'mlflow']!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
