"""Configs as YAML text: read with the line of a mistake, written in one order and style.

Reading is YAML 1.2 (`1e-3` is a number, `on` a word). What is written reads the same under YAML 1.1 too, which the
parser behind LightningCLI speaks (`scalebook.training.files.flow`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node

from scalebook.training.errors import ConfigError
from scalebook.training.files.flow import block
from scalebook.training.files.nodes import BeyondLimit, Tree

TOP_KEYS: Final = (
    "seed_everything", "threads", "float32_matmul_precision", "gpu_share", "trainer", "model", "data", "optimizer",
    "lr_scheduler", "lr_scaling", "noise_scale", "ckpt_path",
)  # fmt: skip
"""Keys of a config, in the order in which they are written."""

FIRST_KEYS: Final = ("class_path", "strategy", "devices")


def load(text: str, *, ours: bool = False) -> Any:
    """The content of YAML `text` as plain dicts, lists and scalars; ConfigError names the line of a mistake.

    Also where it is longer, deeper or larger than the limits of `nodes`; what is `ours`, with all
    defaults written out, may be twice what somebody wrote.
    """
    with understood():
        return Tree(text, 2 if ours else 1).value()


def compose(text: str) -> Node | None:
    """The tree of nodes of `text`, each with the places where it begins and ends; None for an empty text."""
    with understood():
        return Tree(text).root


@contextmanager
def understood() -> Iterator[None]:
    """Whatever the parser raises becomes a ConfigError; its key is the line, where that is known."""
    try:
        yield
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else "YAML"
        if isinstance(error, BeyondLimit):
            raise ConfigError(line, str(error.problem), error.remedy) from error
        what = " ".join((error.problem or "cannot be read").split())
        raise ConfigError(
            line, f"is not YAML ({what})", "Check indentation, colons, quotes and repeated keys."
        ) from error
    except YAMLError as error:
        what = " ".join(str(error).split())
        raise ConfigError("YAML", f"cannot be read ({what})", "Check indentation, colons and quotes.") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, AssertionError) as error:
        what = " ".join(str(error).split())[:80]
        raise ConfigError("YAML", f"has a value that cannot be read ({what})", "Quote it.") from error


def place_of(error: ConfigError) -> str:
    """Where in a text that `load` refused the mistake is, as far as that is known: `line 3, column 7`, from 1."""
    mark = error.__cause__.problem_mark if isinstance(error.__cause__, MarkedYAMLError) else None
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else error.problem.key


def dump(config: Mapping[str, Any]) -> str:
    """`config` as block YAML, top keys in the order of `TOP_KEYS`; "{}" and a line end where it is empty."""
    return block(_ordered(config, TOP_KEYS), 0) or "{}\n"


def _ordered(value: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    keys = [key for key in first if key in value] + [key for key in value if key not in first]
    return {key: _inside(value[key]) for key in keys}


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _ordered(value, FIRST_KEYS)
    if isinstance(value, list | tuple):
        return [_inside(item) for item in value]
    return value
