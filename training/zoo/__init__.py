"""Models, data sets and optimizers that ship, each an example of what a person's own can be.

Begin with `models/classifiers.py` and `data/digits.py`; `data/module.py` and `models/image_model.py` are the bases
for one's own.
"""
