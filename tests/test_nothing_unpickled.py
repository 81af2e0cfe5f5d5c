"""Nothing that we read can run: no pickle, no loader that is one inside, no text that is evaluated."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(path for folder in ("training", "app", "pages") for path in (ROOT / folder).rglob("*.py"))
OWN_PIPES = {"training/lightning/processes/forked.py": 2}
"""Where processes that one fork has made speak over a pipe of their own: so many reads."""

UNPICKLING = ("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "pandas")
READS = ("load", "loads", "Unpickler", "read_pickle", "open")
OBJECTS = (
    "recv_object_list", "broadcast_object_list", "scatter_object_list", "all_gather_object", "gather_object",
)  # fmt: skip
"""Of torch.distributed: they unpickle what others send."""
UNSAFE = ("unsafe_load", "full_load", "load_model", "load_from_checkpoint", "load_state_dict_from_url")


def unsafe(tree: ast.AST) -> Iterator[str]:
    """What is called in a file and could run what it reads, with its line."""
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        called = names.get(called, called)
        module, _, name = called.rpartition(".")
        told = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if (
            (module in UNPICKLING and name in READS)
            or (module in ("torch", "torch.hub") and name == "load" and told.get("weights_only") != "True")
            or (module in ("np", "numpy") and told.get("allow_pickle", "False") != "False")
            or called in ("eval", "exec", "yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader")
            or name in UNSAFE
            or "pyfunc" in called
            or "pickle.loads" in called
            or name in OBJECTS
        ):
            yield f"{node.lineno}: {ast.unparse(node.func)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_or_database_is_read_by_what_could_run_it(path: Path) -> None:
    found = list(unsafe(ast.parse(path.read_text(encoding="utf-8"))))
    assert len(found) == OWN_PIPES.get(str(path.relative_to(ROOT)), 0), found


@pytest.mark.parametrize(
    "line",
    [
        "pickle.loads(x)", "from pickle import loads\nloads(x)", "pickle.Unpickler(x).load()", "torch.load(f)",
        "torch.load(f, weights_only=False)", "np.load(f, allow_pickle=True)", "joblib.load(f)", "eval(x)",
        "mlflow.pyfunc.load_model(x)", "mlflow.pytorch.load_model(x)", "yaml.unsafe_load(x)", "pandas.read_pickle(f)",
        "shelve.open(f)", "Model.load_from_checkpoint(f)", "dist.recv_object_list(x)", "dist.all_gather_object(x, y)",
    ],
)  # fmt: skip
def test_such_lines_are_found(line: str) -> None:
    assert len(list(unsafe(ast.parse(line)))) == 1


def test_others_are_not() -> None:
    assert not list(unsafe(ast.parse("torch.load(f, weights_only=True)\nyaml.load(x)\nmodel.eval()\njson.loads(x)")))
