"""docs/refused.md is the one list of what AsyncPS refuses by design: it is held against the messages in the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scalebook.training.ps.policy.beside_tables import (
    SPARSE_ALONE,
    settings_beside_tables,
    unfit_for_dense,
    unfit_for_rows,
)

ROOT: Final = Path(__file__).resolve().parents[3]
REFUSING: Final = (
    "strategies/refused.py",
    "strategies/sharing.py",
    "strategies/independent.py",
    "strategies/buffers.py",
    "strategies/collectives.py",
    "strategies/applied_step.py",
    "ps/optimizer/rebuilding.py",
    "ps/optimizer/finding.py",
    "ps/optimizer/tables.py",
    "ps/channel/remote_tables.py",
)
REMEDY: Final = re.compile(r"\b(Use|Set|Leave|Write|Give|Return|Make|Create|Remove|Call|Send)\b")


def said(path: Path) -> Iterator[str]:
    """Every message of an error that a module raises; `…` stands for what varies."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    shared = ast.parse((ROOT / "training" / "ps" / "optimizer" / "rebuilding.py").read_text(encoding="utf-8"))
    helpers = {
        node.name: node
        for node in [*shared.body, *tree.body]
        if isinstance(node, ast.FunctionDef) and node.name in ("_refused", "unfit")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            name, arguments = node.exc.func.id, node.exc.args
            if name in helpers:
                yield from _through(helpers[name], arguments, tree)
            elif name in ("ValueError", "TypeError", "RuntimeError") and arguments:
                yield _text(arguments[0], {})


def _through(helper: ast.FunctionDef, arguments: list[ast.expr], tree: ast.Module) -> Iterator[str]:
    """What a helper that makes the error says, given these arguments; a callback's reason is looked up in CALLBACKS."""
    (returned,) = [node for node in ast.walk(helper) if isinstance(node, ast.Return)]
    assert isinstance(returned.value, ast.Call)
    names = [argument.arg for argument in helper.args.args]
    given = {name: _text(value, {}) for name, value in zip(names, arguments, strict=True)}
    message = _text(returned.value.args[0], given)
    if not message.startswith("trainer.callbacks: … …"):
        yield message
        return
    for kind, reason in _callbacks(tree):
        yield message.replace("… …", f"{kind} {reason}", 1)


def _callbacks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    constants = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    callbacks = constants["CALLBACKS"]
    assert isinstance(callbacks, ast.Dict)
    for key, value in zip(callbacks.keys, callbacks.values, strict=True):
        reason = constants[value.id] if isinstance(value, ast.Name) else value
        assert isinstance(key, ast.Name)
        assert reason is not None
        yield key.id, _text(reason, {})


def _text(node: ast.expr, given: dict[str, str]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, given) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, given)
    return given.get(node.id, "…") if isinstance(node, ast.Name) else "…"


def listed() -> dict[str, str]:
    """By message, the reason that the document gives."""
    rows = (ROOT / "docs" / "refused.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| `")]
    return {f"{refused.strip('`')}. {instead}": why for refused, why, instead in cells}


def in_code() -> set[str]:
    messages = {message for name in REFUSING for message in said(ROOT / "training" / name)}
    return {message for message in messages if REMEDY.search(message)} | beside_tables()


def beside_tables() -> set[str]:
    """What does not go with sparse tables, which forms say in the same words."""
    codecs = {"push_codec": "…", "pull_codec": "…"}
    settings = [str(one.error()) for one in settings_beside_tables("…", codecs, keeps_squares=True)]
    unfit = [
        unfit_for_rows("…", {}),
        unfit_for_rows("SGD", {"momentum": 9}),
        unfit_for_dense(SPARSE_ALONE, ["…"], True),
    ]
    optimizers = [f"optimizer: {one.message}. {one.remedy}" for one in unfit if one is not None]
    return {one.replace("momentum 9", "… …").replace("is 9", "is …") for one in [*settings, *optimizers]}


def test_the_document_says_what_the_code_says() -> None:
    missing, outdated = in_code() - set(listed()), set(listed()) - in_code()
    assert not missing, "write these into docs/refused.md"
    assert not outdated, "nobody says these any more: remove them from docs/refused.md"


@pytest.mark.parametrize("message", sorted(listed()))
def test_every_refusal_names_what_why_and_a_remedy(message: str) -> None:
    refused, remedy = message.split(". ", 1)
    assert re.match(r"^[a-z_.]+: ", refused), "it begins with the key or the part of the program that it is about"
    assert REMEDY.search(remedy)
    assert remedy.endswith((".", "…"))
    assert len(listed()[message]) > 20


def test_only_errors_without_a_remedy_are_left_out() -> None:
    """They are of the program, not of a user's settings."""
    messages = {message for name in REFUSING for message in said(ROOT / "training" / name)}
    assert len(messages - in_code()) <= 3
