"""Texts that nobody should write, made from texts that people write: seeded, so that a finding can be made again."""
# ruff: noqa: E501 - tables

import copy
import random
from collections.abc import Callable
from typing import Any, Final

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml

VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 10**17, -(10**17), 2**31, 2**63 - 1, 0.0, -0.0, 0.5, 1e-300, 1e299, 1e308,
    float("inf"), float("-inf"), float("nan"), "", " ", "x", "nan", "null", "true", "1e-3", "²", "१२", "a.b.c", "..", ".",
    "/", "~", "http://127.0.0.1:9/x", "both ' and \"", "`tick`", "line\nline", "\x07\x1b[31m", "x" * 3000, "日本", "\u2028",
    [], {}, [[]], [{}], {"a": 1}, [1, "a", None], {"class_path": "x"}, {"class_path": 1}, {"class_path": None},
    {"init_args": {}}, {"class_path": "scalebook.training.zoo.models.MLPClassifier", "init_args": []}, {"values": []}, {"int": [1, 2]},
    {"int": [2, 1]}, {"uniform": [0, float("inf")]}, {"log_uniform": [0, 1]}, {"grid": [1, 1]}, {"powers_of_two": [3, 5]},
    {"values": [{}, [], None, True]}, [[1, 2], [3]], {1: 2}, {None: None}, {True: False}, {1.5: "x"}, {"": ""},
    "AsyncPS", "ddp", "auto", "tpe", "grid", "gp", "val/loss", [0.9, 0.999], "00:00:10:00", "99:99:99:99",
)  # fmt: skip
PIECES: Final = (
    "&a ", "*a", "<<: *a\n", "!!int ", "!!set ", "!!python/object:os.system ", "9" * 4000, "[" * 300, "{a: " * 300, "- " * 300,
    "\x00", "\ufeff", "\u2028", "\t", "\r", "\r\n", "\n", "---\n", "...\n", "%YAML 1.1\n---\n", "```\n", "~~~\n",
    "```yaml experiment=x\n", "```yaml search=y\n", "```yaml comparison=z\n", "```yaml experiment=\n", "<!--", "> ", "# ",
    ": ", ", ", "? ", "| \n", ">\n", "'", '"', "`", "}", "]", "0x", "1e400", ".nan", "-.inf", "2026-99-99", "2026-01-01",
    "²", "é", "x" * 5000, "config:\n", "  - ", "    ", "space: {}\n", "repeats: 1e3\n", "${HOME}", "{{x}}",
)  # fmt: skip


def mutant(seed: str, rng: random.Random) -> bytes:
    """One to four changes to the text `seed`, then now and then to its bytes."""
    text = seed
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(CHANGES)(text, rng)
    content = text.encode("utf-8", "replace")
    if rng.random() < 0.08:
        content = _broken(content, rng)
    return content


def bent(seed: str, rng: random.Random) -> bytes:
    """The YAML `seed` with one to three of its values replaced, removed, or called otherwise."""
    told = yaml.load(seed)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _bend(told, rng)
    try:
        return yaml.dump(told).encode("utf-8", "replace")
    except (ConfigError, AttributeError):
        return seed.encode()


def _bend(told: Any, rng: random.Random) -> None:
    places = list(_places(told))
    if not places:
        return
    inside, key = rng.choice(places)
    value = copy.deepcopy(rng.choice(VALUES))
    kind = rng.random()
    if kind < 0.7:
        inside[key] = value
    elif kind < 0.8:
        del inside[key]
    elif kind < 0.9 and isinstance(inside, dict):
        inside[rng.choice(("class_path", "init_args", "values", "x", "", 1, None, "a b", "model", "trainer"))] = value
    elif isinstance(inside, dict):
        inside[f"{key}{rng.choice('sx_ .')}"] = inside.pop(key)
    else:
        inside.append(value)


def _places(told: Any) -> list[tuple[Any, Any]]:
    """Every place in `told` that holds a value: the list or mapping, and the index or key in it."""
    keys = list(told) if isinstance(told, dict) else list(range(len(told))) if isinstance(told, list) else []
    return [(told, key) for key in keys] + [place for key in keys for place in _places(told[key])]


def _spot(text: str, rng: random.Random) -> int:
    return rng.randrange(len(text) + 1)


def _insert(text: str, rng: random.Random) -> str:
    at = _spot(text, rng)
    return text[:at] + rng.choice(PIECES) + text[at:]


def _remove(text: str, rng: random.Random) -> str:
    at = _spot(text, rng)
    return text[:at] + text[at + rng.choice((1, 1, 3, 20, 200)) :]


def _repeat(text: str, rng: random.Random) -> str:
    at = _spot(text, rng)
    part = text[at : at + rng.choice((1, 5, 40, 300))]
    return text[:at] + part * rng.choice((2, 3, 50)) + text[at:]


def _cut(text: str, rng: random.Random) -> str:
    return text[: _spot(text, rng)]


def _value(text: str, rng: random.Random) -> str:
    """Something else behind a colon."""
    ends = [at for at, one in enumerate(text) if one == ":"]
    if not ends:
        return text
    at = rng.choice(ends) + 1
    end = min(found for found in (text.find("\n", at), text.find(",", at), text.find("}", at), len(text)) if found >= 0)
    return f"{text[:at]} {rng.choice(PIECES)}{text[end:]}"


def _lines(text: str, rng: random.Random) -> str:
    """Two lines swapped, one of them indented otherwise."""
    lines = text.split("\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], " " * rng.randrange(6) + lines[one].lstrip()
    return "\n".join(lines)


def _character(text: str, rng: random.Random) -> str:
    at = _spot(text, rng)
    return text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x2FFF)))) + text[at + 1 :]


def _broken(content: bytes, rng: random.Random) -> bytes:
    """No UTF-8 any more, or another encoding of Unicode."""
    at = rng.randrange(len(content) + 1)
    broken = (content[:at] + b"\xff\xfe" + content[at:], b"\xff\xfe" + content, b"\xef\xbb\xbf" + content)
    return rng.choice((*broken, content.decode("utf-8").encode("utf-16"), content[:at] + b"\xc3"))


CHANGES: Final[tuple[Callable[[str, random.Random], str], ...]] = (
    _insert, _insert, _remove, _repeat, _cut, _value, _value, _lines, _character,
)  # fmt: skip
