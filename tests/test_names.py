"""One name for one thing: words that were given up, methods whose name says too little, locals that say nothing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("training", "app", "pages", "scalebook")
ENGINE = (ROOT / "training/engine", ROOT / "training/lightning")
GIVEN_UP = (
    "ArchivedWitness", "ArrivingPlayers", "Away", "BetweenTurns", "Broken", "Brought", "Chosen", "Configured",
    "Courier", "Desk", "Door", "Drawn", "Drivers", "Elsewhere", "ElsewhereState", "Fate", "FirstMachine", "Following",
    "Formed", "Gate", "Given", "HeldBy", "KeptReader", "KnownMachines", "Lane", "LaneCalls", "Lasting", "Lending",
    "Lent", "LentTables", "Lives", "MachineLink", "MachinePart", "Meetings", "Met", "Noted", "OneModel", "OnePort",
    "OtherMachine", "OwnReplica", "OwnState", "ParameterElsewhere", "Passage", "Places", "PlayedClaims",
    "PlayedSession", "PlayedWork", "PlayingEnd", "Porter", "Post", "Pushing", "Ran", "RemoteMeetings", "Said", "Saying",
    "Searched", "Section", "SectionCounters", "SectionPlan", "SetAside", "SharedMeetings", "ShownNotes", "ShownState",
    "SimulatedSection", "StandIn", "StandInEnd", "Stay", "StepOne", "Stillness", "Telling", "Told", "Took",
    "TrainingMachine", "Turn", "Turns", "VirtualMachine", "Warm", "WarmProcess", "Way", "Witness", "claim_batch",
    "doomed", "gives_base", "go_on_from", "hand_in", "lay_down", "lay_kept", "let_go", "look_again", "make_sections",
    "plan_section", "plan_sections", "push_steps", "settle", "settle_all", "thaw",
)  # fmt: skip
"""Names of classes and functions of earlier versions. `docs/reference/glossary.md` has today's."""
SHARED_WORDS: Final = ("incarnation",)
"""Words that nothing in the code or the documentation uses; the glossary has today's."""
ENGINE_WORDS: Final = ("claim", "door", "gate", "lane", "letter", "section")
"""The same for the engine and the strategies, where such a word would have a second meaning: a claim is a scientific
one, a section is one of a paper (`section 3.2`)."""
BANNED: Final = (
    "refused by name", "anew", "mends?", "mended", "bears? (?:a|the|asynchronous|stale|it|them)", "thaws?",
    "spare workers?", "whoever makes", "of one's own", "of yours", "stand-ins?", "couriers?", "warm process",
    "starter process", "but for", "(?:does|do) not go with", "(?:is|are) not for peers", "active runs go on",
    "training goes on", "side by side", "prices? (?:all|every) splits?",
    "plays? (?:more|all|many|four) (?:virtual )?workers", "held against", "nothing wrong",
    "beside", "nothing of Ray",
)  # fmt: skip
"""Phrases that a reader must read twice; of one page, or of one string that users see."""
ALLOWED: Final = ("training/engine/coordination/measures.py: section",)
"""A field of records that users have."""
SAY_LITTLE = (
    "at", "begin", "came", "claim", "done", "end", "given", "hold", "keep", "kept", "leave", "link", "look", "meet",
    "own", "said", "say", "shown", "show", "spread", "take", "taken", "tell", "told", "turn",
)  # fmt: skip
MOST_CLASSES = 3
"""Unrelated classes that may have a method of one of these names."""
EMPTY = ("asked", "at", "found", "kept", "known", "shown", "told")
MOST_EMPTY = 16
"""Locals and parameters called so; the number falls, and never rises."""


@cache
def _nodes() -> list[tuple[Path, list[ast.AST]]]:
    """Of each file all nodes, read once for all three tests."""
    return [(path, list(ast.walk(tree))) for path, tree in _trees()]


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in _sources(*FOLDERS):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_words_that_were_given_up_do_not_come_back() -> None:
    back = [
        f"{path}:{node.lineno} {node.name}"
        for path, nodes in _nodes()
        for node in nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in GIVEN_UP
    ]
    assert back == []


def test_words_that_were_given_up_stand_in_no_name_docstring_or_message() -> None:
    back = [
        place
        for path in _sources(*FOLDERS)
        for place in _uses(path, SHARED_WORDS + (ENGINE_WORDS if any(map(path.is_relative_to, ENGINE)) else ()))
    ]
    assert [place for place in back if place not in ALLOWED] == []
    assert [place for place in ALLOWED if place not in back] == []


def test_the_documentation_uses_none_of_these_words_and_names() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert [place for path in pages for place in _uses(path, SHARED_WORDS)] == []
    names = re.compile(rf"`({'|'.join(GIVEN_UP)})[`(.]")
    back = [(path.name, found) for path in pages for found in names.findall(path.read_text(encoding="utf-8"))]
    assert back == []


def test_pages_and_messages_use_no_banned_phrase() -> None:
    """README, pages, the unreleased part of the changelog, and strings of the app and of commands."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    texts = {"CHANGELOG.md": changes[: changes.index("\n## 0.")]}
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        texts[str(path.relative_to(ROOT))] = re.sub(
            r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S
        )
    for path, nodes in _nodes():
        for node in set(nodes) - _docstrings(nodes):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                texts[f"{path}:{node.lineno}"] = node.value
    phrases = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
    assert [
        f"{place}: {found}" for place, text in texts.items() for found in phrases.findall(re.sub(r"\s+", " ", text))
    ] == []


def _docstrings(nodes: list[ast.AST]) -> set[ast.AST]:
    """Strings that are statements."""
    return {node.value for node in nodes if isinstance(node, ast.Expr)}


def _sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _uses(path: Path, words: tuple[str, ...]) -> set[str]:
    """Where a file's path or text has one of the words, or its plural: by itself, or as a part of a name."""
    own = path.relative_to(ROOT)
    text = re.sub(r"\bsections? \d", "", f"{own}\n{path.read_text(encoding='utf-8')}")
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    found = re.findall(rf"(?<![a-z])({'|'.join(words)})s?(?![a-z])", split)
    return {f"{own}: {word}" for word in found}


def test_a_method_s_name_says_what_it_does() -> None:
    """A class and those that it is derived from, or that are derived from it, count once."""
    bases: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = defaultdict(set)
    for _, nodes in _nodes():
        for node in nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            bases.setdefault(node.name, set()).update(ast.unparse(base).split("[")[0] for base in node.bases)
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name in SAY_LITTLE:
                    classes[item.name].add(node.name)
    several = {
        name: sorted(roots) for name, found in classes.items() if len(roots := _roots(found, bases)) > MOST_CLASSES
    }
    assert several == {}


def _roots(classes: set[str], bases: dict[str, set[str]]) -> set[str]:
    """Those of the classes that are derived from no other of them."""

    def above(name: str) -> set[str]:
        direct = bases.get(name, set())
        return direct.union(*(above(base) for base in direct))

    return {name for name in classes if not above(name) & classes}


def test_locals_that_say_nothing_become_fewer() -> None:
    empty = [
        f"{path}:{node.lineno}"
        for path, nodes in _nodes()
        for node in nodes
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY)
        or (isinstance(node, ast.arg) and node.arg in EMPTY)
    ]
    assert len(empty) <= MOST_EMPTY
