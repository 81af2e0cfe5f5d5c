"""Experiment configs, without torch: what they mean, whether they are right, and what to write where they are not.

Begin with `experiment.py`: a config, parsed once, with its strategy (`strategies.py`). Form, commands, searches,
planner and jobs take an `Experiment`; raw mappings are left to YAML, to LightningCLI's input and to the form's draft.
`validation.py` says what is wrong with one. `description.py` is what is known of the classes that a config names,
`catalogue.py` how it is got, `identity.py` the hash of a config, `known_classes.py` the classes that configs may name.
`search/` reads searches.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.experiments import (
        catalogue,
        classes,
        command_line,
        logged_metrics,
        lr_scaling,
        pipeline_order,
        search,
    )
    from scalebook.training.experiments.argument_keys import as_config_errors, key_of, problem_of
    from scalebook.training.experiments.classes import ChosenClass, NamedClass
    from scalebook.training.experiments.command_line import CommandLine
    from scalebook.training.experiments.confinement import Confinement
    from scalebook.training.experiments.data_paths import data_of, data_path_problems, staying
    from scalebook.training.experiments.description import (
        GROUPS,
        ClassInfo,
        Description,
        Field,
        FieldType,
        Group,
        NotOffered,
    )
    from scalebook.training.experiments.experiment import Experiment, LearningRate, seeds_from
    from scalebook.training.experiments.fields import check_value, quoted_value
    from scalebook.training.experiments.former_arguments import NOW, without_written_out
    from scalebook.training.experiments.found_modules import FoundModule, found, name_modules, write_template
    from scalebook.training.experiments.identity import alike_digests, base_content, config_hash
    from scalebook.training.experiments.introspect import Source, argument, describe_class, fields_of
    from scalebook.training.experiments.known_classes import offered, paths_today
    from scalebook.training.experiments.model_conflicts import asks_for_parameters, inspect_model, unfit_optimizer
    from scalebook.training.experiments.model_parameters import (
        ModelParameter,
        ModelParameters,
        ask_describe,
        cached_parameters,
        find_out,
    )
    from scalebook.training.experiments.paths import fields_by_path
    from scalebook.training.experiments.split_degrees import microbatches_of, refuse_degrees
    from scalebook.training.experiments.strategies import (
        DIRECTIONS,
        STRATEGY_NAMES,
        VIRTUAL,
        AsyncPSSettings,
        DDPSettings,
        ModelParallelSettings,
        PeersSettings,
        SingleProcess,
        Strategy,
        choice,
        made_codec,
        strategy_words,
    )
    from scalebook.training.experiments.validation import (
        GPU_SHARE,
        MATMUL,
        NOISE_SCALE,
        SEED,
        THREADS,
        require,
        validate,
    )
    from scalebook.training.experiments.validation_schedule import validation_words

__all__ = [
    "DIRECTIONS", "GPU_SHARE", "GROUPS", "MATMUL", "NOISE_SCALE", "NOW", "SEED", "STRATEGY_NAMES", "THREADS",
    "VIRTUAL", "AsyncPSSettings", "ChosenClass", "ClassInfo", "CommandLine", "Confinement", "DDPSettings",
    "Description", "Experiment", "Field", "FieldType", "FoundModule", "Group", "LearningRate", "ModelParallelSettings",
    "ModelParameter", "ModelParameters", "NamedClass", "NotOffered", "PeersSettings", "SingleProcess", "Source",
    "Strategy", "alike_digests", "argument", "as_config_errors", "ask_describe", "asks_for_parameters", "base_content",
    "cached_parameters", "catalogue", "check_value", "choice", "classes", "command_line", "config_hash", "data_of",
    "data_path_problems", "describe_class", "fields_by_path", "fields_of", "find_out", "found", "inspect_model",
    "key_of", "logged_metrics", "lr_scaling", "made_codec", "microbatches_of", "name_modules", "offered",
    "paths_today", "pipeline_order", "problem_of", "quoted_value", "refuse_degrees", "require", "search", "seeds_from",
    "staying", "strategy_words", "unfit_optimizer", "validate", "validation_words", "without_written_out",
    "write_template",
]  # fmt: skip

__getattr__ = interface(__name__)
