"""Where in a YAML text a key stands, so that a mistake can be shown on its line."""

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml


def composed(text: str) -> Node | None:
    """The nodes of `text`; None where it is empty or cannot be read."""
    try:
        return yaml.compose(text)
    except ConfigError:
        return None


def line_of(node: Node | None, dotted: str) -> int:
    """The line, from 0, of the key `dotted` (`config.trainer.devices`), or of the nearest key above it that exists."""
    line = 0
    rest = dotted
    while node is not None and rest:
        below = _step(node, rest)
        if below is None:
            return line
        at, node, rest = below
        line = int(at.start_mark.line)
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
