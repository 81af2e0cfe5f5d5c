"""The messages of LightningCLI's parser as one line with key and remedy; torch-free, it reads text only."""

import re
from typing import Final

from scalebook.training.errors import ConfigError

KEY: Final = re.compile(r'Parser key "([^"]+)"')
NOT_ACCEPTED: Final = re.compile(r"(?:Option|option) '([^']+)' is not accepted|does not accept option '([^']+)'")
CLASS: Final = re.compile(r"Problem with given class_path '([^']+)'")
MISSING: Final = re.compile(r"required(?: but not included)?: ?(.+)|Key \"([^\"]+)\" is required")
SUBCOMMAND: Final = re.compile(r"^(fit|validate|test|predict)\.")


def translated(text: str) -> ConfigError:
    """What the parser said, as the error that the command line prints."""
    keys = [SUBCOMMAND.sub("", key) for key in KEY.findall(text) if key not in ("fit", "validate", "test", "predict")]
    key = keys[0] if keys else "config"
    classes = CLASS.findall(text)
    if unknown := NOT_ACCEPTED.search(text):
        name = unknown.group(1) or unknown.group(2)
        owner = f"{classes[-1]} has no argument of that name" if classes else "unknown key"
        return ConfigError(f"{key}.{name}", owner, "Remove or rename it.")
    if missing := MISSING.search(text):
        what = (missing.group(1) or missing.group(2)).strip()
        owner = classes[-1] if classes else "the config"
        return ConfigError(key, f"{owner} needs {what}", "Add it.")
    reasons = [
        line.strip(" -\t") for line in text.splitlines() if re.match(r"\s*(- )?(Expected|Import|No module)", line)
    ]
    reasons = [line for line in reasons if "NoneType" not in line] or [text.strip().splitlines()[-1].strip()]
    value = re.search(r"Given value: (.+)", text)
    given = f"is {value.group(1)[:60]}: " if value else ""
    return ConfigError(".".join(keys) if len(keys) > 1 else key, f"{given}{reasons[-1]}", "Write a value of that kind.")
