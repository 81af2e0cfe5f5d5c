"""Splits that keep together what belongs together."""

import numpy as np


def held_out(group: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which samples validate, bool [samples]: about `fraction` of the groups, at least one and not all of them.

    group: int64 [samples], counted from 0. The same arguments give the same split in every version: numpy guarantees
    RandomState's stream.
    """
    groups = int(group.max()) + 1
    count = min(max(1, round(fraction * groups)), groups - 1)
    return np.isin(group, np.random.RandomState(seed).permutation(groups)[:count])
