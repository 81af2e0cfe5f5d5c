"""Experiment configs, without torch: what they mean, whether they are right, and what to write where they are not.

Begin with `validate.py`, which form and command line ask, and `completion.py`, which writes out what a config leaves
open. `description.py` is what is known of the classes that a config names, `catalogue.py` how it is got, `identity.py`
the hash of a config, `known_classes.py` the classes that configs may name. `search/` reads searches.
"""
