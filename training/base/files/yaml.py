"""Configs as YAML text: errors name the line; writing uses one order and style.

Reading is YAML 1.2 (`1e-3` is a number, `on` a word). What is written reads the same under YAML 1.1, which
LightningCLI's parser uses (`yaml_flow.py`). No text costs more than a moment or some megabytes: limits are checked
while the tree of nodes grows, before any value is made.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.yaml_flow import block

TOP_KEYS: Final = (
    "seed_everything", "threads", "float32_matmul_precision", "gpu_share", "trainer", "model", "data", "optimizer",
    "lr_scheduler", "lr_scaling", "noise_scale", "ckpt_path",
)  # fmt: skip
"""The top keys of a config, in the order in which they are written."""

FIRST_KEYS: Final = ("class_path", "strategy", "devices")

MOST_CHARACTERS: Final = 500_000
MOST_VALUES: Final = 10_000
"""The most keys and values, those behind an alias counted each time; 0.4 s to read."""

DEEPEST: Final = 32
"""The deepest nesting; a config has about six levels, and twelve with all defaults written out."""

MOST_DIGITS: Final = 18
"""The most digits of a whole number: what the stores of runs and studies hold (64 bits)."""

INTEGER: Final = "tag:yaml.org,2002:int"
STRANGE: Final = tuple(f"tag:yaml.org,2002:{name}" for name in ("set", "omap", "pairs", "binary"))
"""Types that no config has and that would not be written again as they were read."""

SPLIT: Final = "Split it, or remove what is not needed."


def load(text: str, *, ours: bool = False) -> Any:
    """The content of YAML `text` as plain dicts, lists and scalars; ConfigError names the line of a mistake.

    It is also raised beyond the limits above; they are twice as high if the text is `ours`, with all defaults written
    out.
    """
    with parser_errors():
        return Tree(text, 2 if ours else 1).value()


def compose(text: str) -> Node | None:
    """The tree of nodes of `text`, each with its start and end; None for an empty text."""
    with parser_errors():
        return Tree(text).root


@contextmanager
def parser_errors() -> Iterator[None]:
    """Turn whatever the parser raises into a ConfigError; its key is the line, if that is known."""
    try:
        yield
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else "YAML"
        if isinstance(error, BeyondLimit):
            raise ConfigError(line, str(error.problem), error.fix) from error
        problem = " ".join((error.problem or "cannot be read").split())
        raise ConfigError(
            line, f"is not YAML ({problem})", "Check indentation, colons, quotes and repeated keys."
        ) from error
    except YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError("YAML", f"cannot be read ({problem})", "Check indentation, colons and quotes.") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, AssertionError) as error:
        problem = " ".join(str(error).split())[:80]
        raise ConfigError("YAML", f"has a value that cannot be read ({problem})", "Quote it.") from error


def place_of(error: ConfigError) -> str:
    """Where the mistake is in a text that `load` refused, as far as known: `line 3, column 7`, counted from 1."""
    mark = error.__cause__.problem_mark if isinstance(error.__cause__, MarkedYAMLError) else None
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else error.problem.key


def line_of(node: Node | None, dotted: str) -> int | None:
    """The line, from 0, of the key `dotted` (`config.trainer.devices`), or of the nearest key above it that exists.

    None if there is none.
    """
    line: int | None = None
    rest = dotted
    while node is not None and rest:
        below = _step(node, rest)
        if below is None:
            return line
        key, node, rest = below
        line = int(key.start_mark.line)
    return line


def _step(node: Node, dotted: str) -> tuple[Node, Node, str] | None:
    """One key down: the key's node, its value, and what is left of the path. Keys may themselves hold dots."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            name = str(key.value)
            if dotted == name or dotted.startswith((f"{name}.", f"{name}[")):
                return key, value, dotted[len(name) :].lstrip(".")
    if isinstance(node, SequenceNode):
        index, _, rest = dotted.strip("[").partition("]") if dotted.startswith("[") else dotted.partition(".")
        if index.isdecimal() and len(index) < 9 and int(index) < len(node.value):
            item = node.value[int(index)]
            return item, item, rest.lstrip(".")
    return None


def dump(content: Mapping[str, Any]) -> str:
    """`content` as block YAML, top keys in the order of `TOP_KEYS`; "{}" and a line end if it is empty."""
    return block(_ordered(content, TOP_KEYS), 0) or "{}\n"


def _ordered(value: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    keys = [key for key in first if key in value] + [key for key in value if key not in first]
    return {key: _inside(value[key]) for key in keys}


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _ordered(value, FIRST_KEYS)
    if isinstance(value, list | tuple):
        return [_inside(item) for item in value]
    return value


class BeyondLimit(MarkedYAMLError):
    """The text is YAML, and exceeds a limit. `fix` is a full sentence."""

    def __init__(self, problem: str, mark: StringMark | None, fix: str) -> None:
        super().__init__(None, None, problem, mark)
        self.fix = fix


class Tree:
    """One text, parsed once: its nodes, each with its start and end, and its value.

    `room` multiplies the limits. Raises MarkedYAMLError, and whatever ruamel raises for text that is not YAML.
    """

    def __init__(self, text: str, room: int = 1) -> None:
        if len(text) > room * MOST_CHARACTERS:
            raise BeyondLimit(f"has {len(text):,} characters, more than {room * MOST_CHARACTERS:,}", None, SPLIT)
        self._yaml = YAML(typ="safe", pure=True)
        composer: Any = partial(_Counting, room * MOST_VALUES, room * DEEPEST)
        self._yaml.Composer = composer
        self.root: Node | None = self._yaml.compose(text)
        if self.root is not None:
            _Followed(room * MOST_VALUES, room * DEEPEST).measure(self.root)

    def value(self) -> Any:
        """The value as plain dicts, lists and scalars; values behind one anchor are one object. Call it once: it uses
        up the nodes."""
        return None if self.root is None else self._yaml.constructor.construct_document(self.root)


class _Counting(Composer):
    """Stops at the first node that is one too many or too deep."""

    def __init__(self, most: int, deepest: int, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML allows them: the later one counts
        self.most, self.deepest = most, deepest
        self.count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.count += 1
        mark = self.parser.peek_event().start_mark
        if self.count > self.most:
            raise BeyondLimit(f"has more than {self.most:,} values", mark, SPLIT)
        if self.depth >= self.deepest:
            raise BeyondLimit(f"is nested deeper than {self.deepest} levels", mark, "Reduce the nesting.")
        node = super().compose_node(parent, index)
        if str(node.tag) in STRANGE:
            name = str(node.tag).rpartition(":")[2]
            raise BeyondLimit(f"has a value with the tag !!{name}", mark, "Use a list, a mapping or a string.")
        return node

    def compose_scalar_node(self, anchor: Any) -> ScalarNode:
        node: ScalarNode = super().compose_scalar_node(anchor)
        digits = len(node.value.replace("_", "").lstrip("+-0"))
        if str(node.tag) == INTEGER and digits > MOST_DIGITS:
            fix = f"Use at most {MOST_DIGITS} digits, write it as a real number such as 1.0e+30, or put it into quotes."
            raise BeyondLimit(f"holds a whole number of {digits:,} digits", node.start_mark, fix)
        return node


class _Followed:
    """The limits with every alias followed: 400 characters can stand for a billion values, or contain themselves.

    What stands behind an alias is measured once and counted each time.
    """

    def __init__(self, most: int, deepest: int) -> None:
        self.most, self.deepest = most, deepest
        self.known: dict[int, tuple[int, int]] = {}
        self.above: set[int] = set()

    def measure(self, node: Node) -> tuple[int, int]:
        """Nodes below and including `node`, and levels of them."""
        if not isinstance(node, CollectionNode):
            return 1, 1
        if id(node) in self.known:
            return self.known[id(node)]
        if id(node) in self.above:
            raise BeyondLimit("contains itself", node.start_mark, "Remove the alias that points to its own parent.")
        self.above.add(id(node))
        size, depth = 1, 1
        for item in node.value:
            for child in item if isinstance(item, tuple) else (item,):
                below, levels = self.measure(child)
                size, depth = size + below, max(depth, levels + 1)
            if size > self.most:
                problem = f"has more than {self.most:,} values when its aliases are followed"
                raise BeyondLimit(problem, node.start_mark, SPLIT)
            if depth > self.deepest:
                problem = f"is nested deeper than {self.deepest} levels when its aliases are followed"
                raise BeyondLimit(problem, node.start_mark, "Reduce the nesting.")
        self.above.remove(id(node))
        self.known[id(node)] = size, depth
        return size, depth
