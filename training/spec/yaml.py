"""Configs as YAML text: read with the line of a mistake, written in one order and style.

Reading is YAML 1.2 (`1e-3` is a number, `on` a word). What is written reads the same under YAML 1.1 too, which the
parser behind LightningCLI speaks (`training.spec.flow`).
"""

from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from training.spec.errors import ConfigError
from training.spec.flow import block

TOP_KEYS: Final = (
    "seed_everything", "threads", "trainer", "model", "data", "optimizer", "lr_scheduler", "lr_scaling", "noise_scale",
    "ckpt_path",
)  # fmt: skip
"""Keys of a config, in the order in which they are written."""

FIRST_KEYS: Final = ("class_path", "strategy", "devices")


def load(text: str) -> Any:
    """The content of YAML `text` as plain dicts, lists and scalars; ConfigError names the line of a mistake."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else "YAML"
        what = " ".join((error.problem or "cannot be read").split())
        raise ConfigError(
            line, f"is not YAML ({what})", "Check indentation, colons, quotes and repeated keys."
        ) from error
    except YAMLError as error:
        raise ConfigError("YAML", f"cannot be read ({error})", "Check indentation, colons and quotes.") from error


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
