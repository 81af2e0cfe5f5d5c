"""docs/reference/refusals.md lists what AsyncPS refuses by design. It is held against the messages in the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scalebook.training.engine.rules.table_conflicts import settings_beside_tables, unfit_for_rows

ROOT: Final = Path(__file__).resolve().parents[4]
REFUSING: Final = (
    "lightning/async_ps/refusals.py",
    "lightning/processes/cuda_fork.py",
    "lightning/data/data_sharing.py",
    "lightning/async_ps/engine_strategy.py",
    "lightning/buffers.py",
    "lightning/async_ps/collectives.py",
    "lightning/async_ps/applied_step.py",
    "engine/worker/client.py",
    "engine/store/rebuilt_optimizer.py",
    "engine/store/written_step.py",
    "lightning/tied_weights.py",
    "engine/store/state_discovery.py",
    "engine/store/table_optimizer.py",
    "engine/net/remote_tables.py",
    "engine/rules/table_conflicts.py",
)
REMEDY: Final = re.compile(r"\b(Add|Use|Set|Leave|Keep|Give|Return|Make|Create|Remove|Call|Send)\b")

ERRORS: Final = ("ValueError", "TypeError", "RuntimeError", "UnfitError", "WrittenError")
ENDS: Final = {"_refused": ", or use a strategy other than AsyncPS."}
"""What helpers that make an error add to what they are given."""


def said(path: Path) -> Iterator[str]:
    """Every message of an error that a module makes; `…` stands for what varies."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id == "ArgumentError":
                argument, message, fix = map(_text, node.args[1:])
                if message != "…":  # not put together of what the caller says
                    yield f"{argument}: {message}. {fix}"
            elif node.func.id in ERRORS:
                yield _text(node.args[0])
            elif node.func.id in ENDS:
                yield _text(node.args[0]) + ENDS[node.func.id]


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(map(_text, node.values)) if isinstance(node, ast.JoinedStr) else "…"


def listed() -> dict[str, str]:
    """By message, the reason that the document gives."""
    text = (ROOT / "docs" / "reference" / "refusals.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- `(.+)`\n  - (.+)\n  - (.+)$", text, re.M)
    return {f"{refused}. {instead}": why for refused, instead, why in entries}


def in_code() -> set[str]:
    messages = {message for name in REFUSING for message in said(ROOT / "training" / name)}
    return {message for message in messages if REMEDY.search(message)} | beside_tables()


def beside_tables() -> set[str]:
    """What does not go with sparse tables, which forms say in the same words."""
    (local,) = settings_beside_tables("…", {}, keeps_squares=False)
    unfit = unfit_for_rows("…", {})
    assert unfit is not None
    return {
        str(local).replace("local:", "…:").replace("Use none", "Use …"),
        str(unfit).replace("is …", "…"),
    }


def test_the_document_says_what_the_code_says() -> None:
    missing, outdated = in_code() - set(listed()), set(listed()) - in_code()
    assert not missing, "write these into docs/reference/refusals.md"
    assert not outdated, "nobody says these any more: remove them from docs/reference/refusals.md"


@pytest.mark.parametrize("message", sorted(listed()))
def test_every_refusal_names_what_why_and_a_remedy(message: str) -> None:
    refused, fix = message.split(". ", 1)
    assert re.match(r"^[a-z_.…]+: ", refused), "it begins with the key or the part of the program that it is about"
    assert REMEDY.search(fix)
    assert fix.endswith((".", "…"))
    assert len(listed()[message]) > 20


def test_only_errors_without_a_remedy_are_left_out() -> None:
    """They are of the program, not of a user's settings; or they are put together of what others say."""
    messages = {message for name in REFUSING for message in said(ROOT / "training" / name)}
    assert messages - in_code() == {
        "a stream without a length",
        "model: has sparse tables, but worker 0 does not run on the node that holds them.",
        "…",
        "…, or use a strategy other than AsyncPS.",
    }
