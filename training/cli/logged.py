"""The validation metrics that a model logs, as far as its source tells without running it.

`self.log("val/accuracy", ...)`, whatever the value is, and `self.log_dict({"val/loss": ...})`; also where the first
part of the name is what `validation_step` passes on: `self.log(f"{stage}/loss", ...)` after `self.step(batch, "val")`.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Final

VALIDATION: Final = "val"
"""Beginning of a validation metric's name, wherever it is logged."""


def logged(kind: type) -> list[str]:
    """The metrics that a model logs, in the order of its source, losses first; none if it cannot be read."""
    methods = _methods(kind)
    of_validation = [body for name, body in methods.items() if _validates(name)]
    stages = [text for body in of_validation for text in _passed_on(body)]
    names = [
        name
        for method, body in methods.items()
        for name in _names(body, stages)
        if _validates(method) or name.startswith(VALIDATION)
    ]
    return sorted(dict.fromkeys(names), key=lambda name: not name.endswith("loss"))


def _validates(method: str) -> bool:
    return method.startswith(("validation_", "on_validation_"))


def _methods(kind: type) -> dict[str, ast.AST]:
    """Those of the class and of its bases, of several with one name the one that is called."""
    methods: dict[str, ast.AST] = {}
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("builtins", "lightning", "torch"):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # made by a call, or typed into an interpreter
            continue
        for node in tree.body if isinstance(tree, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef):
                methods.setdefault(node.name, node)
    return methods


def _names(body: ast.AST, stages: list[str]) -> Iterator[str]:
    """What a method logs."""
    for call in _calls(body, "log", "log_dict"):
        key = next((word.value for word in call.keywords if word.arg in ("name", "dictionary")), None)
        written = call.args[0] if call.args else key
        for node in written.keys if isinstance(written, ast.Dict) else (written,):
            yield from _texts(node, stages)


def _texts(node: ast.AST | None, stages: list[str]) -> Iterator[str]:
    """A text, or one that begins with a stage's name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.FormattedValue):
        rest = [part.value for part in node.values[1:] if isinstance(part, ast.Constant)]
        if len(rest) == len(node.values) - 1:
            yield from (f"{stage}{''.join(map(str, rest))}" for stage in stages)


def _passed_on(body: ast.AST) -> Iterator[str]:
    """Texts that a method passes to others of the model: `self.step(batch, "val")`."""
    for call in _calls(body):
        for value in (*call.args, *(word.value for word in call.keywords)):
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.startswith(VALIDATION):
                yield value.value


def _calls(body: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Of methods of the model, by name: of all others than `log` where none is named."""
    for node in ast.walk(body):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                if name in names or (not names and name not in ("log", "log_dict")):
                    yield node
