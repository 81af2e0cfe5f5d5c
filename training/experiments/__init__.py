"""Experiment configs, without torch: what they mean, whether they are right, and what to write where they are not.

Begin with `experiment.py`: a config, parsed once, with its strategy (`strategies.py`). Form, commands, searches,
planner and jobs take an `Experiment`; raw mappings are left to YAML, to LightningCLI's input and to the form's draft.
`validate.py` says what is wrong with one, `completion.py` writes out what a config leaves open. `description.py` is
what is known of the classes that a config names, `catalogue.py` how it is got, `identity.py` the hash of a config,
`known_classes.py` the classes that configs may name. `search/` reads searches.
"""
