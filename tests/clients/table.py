"""All cases, and what is measured of each. Few updates, so tolerances are wide; a silent fault shows all the same."""

from typing import Final

from tests.clients.case import Case, Measure, Way


def lower(tolerance: float, *baselines: Way) -> Measure:
    return Measure("lower", tolerance, baselines or ("single", "ddp"))


def higher(tolerance: float) -> Measure:
    return Measure("higher", tolerance)


SAVED: Final = {"saved": lower(1e-5, "single")}
"""How far what a plain Trainer computes from the best checkpoint is from the score that the run gave it; relative."""
APART: Final = {"apart": lower(0.1)}
"""How far a buffer is apart between the workers at the end of training; relative to its norm. A batch does 0.05."""

EQUAL: Final = {"loss": Measure("same", 1e-5, ("single",)), "weights": Measure("same", 1e-6, ("single",))}
ALIKE: Final = {**EQUAL, **SAVED}
"""Loss of the trained model in a plain Trainer, and its absolute weights together, as trained in one process; relative.
"""
ROUNDED: Final = {"loss": Measure("same", 1e-3, ("single",)), "weights": Measure("same", 1e-4, ("single",))}
"""The same, where the example computes in bf16 if it is sharded."""
SPLIT: Final[tuple[Way, ...]] = ("single", "tensor", "shard", "both")
NO_PLAN: Final[tuple[Way, ...]] = ("single", "shard")
"""Models that bring no plan of their own."""

FORECASTING: Final = ("pytorch-forecasting", "pytorch_optimizer")

CASES: Final = (
    Case("pytorch-forecasting TFT", "forecasting.tft", FORECASTING, {"loss": lower(0.15), **SAVED}),
    Case("pytorch-forecasting TFT, ranger", "forecasting.tft_with_ranger", FORECASTING, {"loss": lower(0.15), **SAVED}),
    Case("pytorch-forecasting DeepAR", "forecasting.deepar", FORECASTING, {"loss": lower(0.4), **SAVED}),
    Case("gluonts DeepAR", "forecasting.gluonts_deepar", ("gluonts",), {"loss": lower(0.6)}),
    Case("scvi-tools SCVI", "cells.scvi_model", ("scvi-tools",), {"elbo": higher(3.0), **SAVED}),
    Case("chemprop MPNN", "molecules.mpnn", ("chemprop",), {"loss": lower(0.15), **SAVED}),
    Case("torch_geometric", "graphs.graph_classifier", ("torch_geometric",), {"loss": lower(0.15), **SAVED}),
    Case("MONAI UNet", "segmentation.segmenter", ("monai",), {"dice": higher(0.2), **SAVED}),
    Case("diffusers UNet2D, EMA", "diffusion.diffusion", ("diffusers",), {"loss": lower(0.15)}),
    Case("transformers GPT-2", "language.gpt2", ("transformers",), {"loss": lower(0.4), **SAVED}),
    Case("peft BERT + LoRA", "language.bert_with_lora", ("transformers", "peft"), {"loss": lower(0.15), **SAVED}),
    Case("hydra template", "template.experiment", ("hydra-core", "rich"), {"accuracy": higher(0.1), **SAVED}),
    Case("CLIP-like", "contrastive.clip", (), {"loss": lower(0.1), **SAVED}),
    Case("MoCo queue", "contrastive.moco", (), {"hits": higher(0.1), **APART}),
    Case("metric-learning", "metric_learning.embedding", ("pytorch-metric-learning",), {"neighbours": higher(0.1)}),
    Case("WGAN-GP, manual", "adversarial.wgan_gp", (), {"mean_error": lower(1.3)}),
    Case("DQN, IterableDataset", "reinforcement.dqn", (), {"return_lost": lower(0.1)}),
    Case("VQ-VAE", "codebooks.vq_vae", (), {"loss": lower(0.03), **APART, **SAVED}),
    Case("online clustering", "codebooks.clustering", (), {"accuracy": higher(0.1), **APART, **SAVED}),
    Case("neuralforecast NHITS", "two_packages.neuralforecast_nhits", ("neuralforecast",), {"mae": lower(0.3)}, True),
    Case("darts TiDE", "two_packages.darts_tide", ("darts",), {"mae": lower(0.2)}, True),
    Case("transformers Llama, split", "split.llama", ("transformers",), ALIKE, ways=SPLIT),
    Case("transformers Llama, tied, split", "split.tied_llama", ("transformers",), ALIKE, ways=SPLIT),
    Case("transformers Qwen3, split", "split.qwen3", ("transformers",), ALIKE, ways=SPLIT),
    Case("transformers GPT-NeoX, split", "split.gpt_neox", ("transformers",), ALIKE, ways=SPLIT),
    Case("transformers GPT-2, split", "split.gpt2", ("transformers",), ALIKE, ways=NO_PLAN),
    Case("transformers BERT, split", "split.bert", ("transformers",), ALIKE, ways=NO_PLAN),
    Case("MLP with configure_model", "split_itself.mlp", (), ALIKE, ways=SPLIT),
    Case("Lightning's example, by tensor", "lightning_example.by_tensor", (), EQUAL, ways=("single", "tensor")),
    Case(
        "Lightning's example, by shards", "lightning_example.by_shards", (), ROUNDED, ways=("single", "shard", "both")
    ),
)
"""`packages` come by pip, by name; a case without is of torch and Lightning alone, as people publish such code."""


def by_name(part: str) -> list[Case]:
    """Those whose name or program contains `part`, in any case."""
    return [case for case in CASES if part.lower() in case.name.lower() or part.lower() in case.program]
