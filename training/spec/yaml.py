"""Configs as YAML text: read with the line of a mistake, written in one order and style.

Reading is YAML 1.2 (`1e-3` is a number, `on` a word). What is written reads the same under YAML 1.1 too, which the
parser behind LightningCLI speaks: such words are quoted, floats always have a dot.
"""

import io
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from training.spec.errors import ConfigError

TOP_KEYS: Final = ("seed_everything", "threads", "trainer", "model", "data", "optimizer", "lr_scheduler", "ckpt_path")
"""Keys of a config, in the order in which they are written."""

FIRST_KEYS: Final = ("class_path", "strategy", "devices")
WORDS_OF_YAML_1_1: Final = frozenset({"y", "n", "yes", "no", "on", "off"})


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
    """`config` as block YAML, top keys in the order of `TOP_KEYS`, lists of scalars on one line."""
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.width = 110
    out = io.StringIO()
    yaml.dump(_ordered(config, TOP_KEYS), out)
    return out.getvalue()


class _Representer(RoundTripRepresenter):
    """Floats with a dot (`1.0e-05`), None as `null`."""


def _represent_float(representer: _Representer, value: float) -> Any:
    text = repr(value)
    special = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}
    text = special.get(text, text.replace("e", ".0e") if "e" in text and "." not in text else text)
    return representer.represent_scalar("tag:yaml.org,2002:float", text)


def _represent_none(representer: _Representer, value: None) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(float, _represent_float)
_Representer.add_representer(type(None), _represent_none)


def _ordered(value: Mapping[str, Any], first: tuple[str, ...]) -> CommentedMap:
    keys = [key for key in first if key in value] + [key for key in value if key not in first]
    return CommentedMap((_scalar(key), _node(value[key])) for key in keys)


def _node(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _ordered(value, FIRST_KEYS)
    if isinstance(value, list | tuple):
        found = CommentedSeq(_node(item) for item in value)
        if not any(isinstance(item, Mapping | list | tuple) for item in value):
            found.fa.set_flow_style()
        return found
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in WORDS_OF_YAML_1_1:
        return DoubleQuotedScalarString(value)
    return value
