"""What an update takes, from what a model and its machines are: for the planner.

Begin with `splits.py`, the price of one model over several workers. `layers.py` and `profile.py` say what is priced,
`layer_times.py` measures layers, `pipelines.py` plays stages. What the browser side uses imports no torch.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.pricing import links, part_record, reductions
    from scalebook.training.pricing.layer_times import STEPS, LayerTimes, units
    from scalebook.training.pricing.layers import Layer, scaled
    from scalebook.training.pricing.links import Network
    from scalebook.training.pricing.part_record import PartRecord
    from scalebook.training.pricing.pipelines import bubble
    from scalebook.training.pricing.profile import (
        Profile,
        SharedNode,
        Software,
        delayed_s,
        load_profile,
        mean_s,
        profile_mapping,
        read_profile,
        scaled_s,
    )
    from scalebook.training.pricing.quantities import format_quantity, workers_words
    from scalebook.training.pricing.splits import (
        Price,
        Split,
        TooFewLayersError,
        bytes_a_second,
        data_ratio,
        factorizations,
        microbatch_counts,
        price,
        tensor_ratio,
    )

__all__ = [
    "STEPS", "Layer", "LayerTimes", "Network", "PartRecord", "Price", "Profile", "SharedNode", "Software", "Split",
    "TooFewLayersError", "bubble", "bytes_a_second", "data_ratio", "delayed_s", "factorizations", "format_quantity",
    "links", "load_profile", "mean_s", "microbatch_counts", "part_record", "price", "profile_mapping", "read_profile",
    "reductions", "scaled", "scaled_s", "tensor_ratio", "units", "workers_words",
]  # fmt: skip

__getattr__ = interface(__name__)
