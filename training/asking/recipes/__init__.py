"""The questions that can be asked. Each file of this folder holds one recipe; to add one, add a file.

Begin with `more_workers.py`.
"""

import importlib
import pkgutil
from functools import cache

from scalebook.training.asking.recipe import Recipe
from scalebook.training.base import ConfigError
from scalebook.training.experiments import classes


@cache
def all_recipes() -> dict[str, Recipe]:
    """All recipes by name, in the order in which they are offered."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    every = sorted((kind() for kind in Recipe.__subclasses__()), key=lambda one: (one.place, one.name))
    return {one.name: one for one in every}


def recipe_named(name: str) -> Recipe:
    """The recipe of that name; ConfigError where there is none."""
    if name not in all_recipes():
        raise ConfigError("question", f"{name!r} is unknown", classes.suggestion(name, all_recipes()))
    return all_recipes()[name]
