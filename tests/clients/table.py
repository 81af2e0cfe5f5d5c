"""All cases, and what is measured of each. Few updates, so tolerances are wide; a silent fault shows all the same."""

from collections.abc import Mapping
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

ONE: Final = {"loss": 1e-5, "weights": 1e-5}
"""What is one process's under `sync`."""
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
PROBABILISTIC: Final = ("gpytorch", "pyro-ppl", "zuko")
DYNAMICS: Final = ("snntorch", "torchdiffeq", "torchsde")
GEOMETRY: Final = ("geoopt", "e3nn", "kornia")
AVERAGES: Final = ("ema-pytorch", "torch-ema")
OPTIMIZERS: Final = ("pytorch_optimizer", "prodigyopt", "schedulefree")
STREAMS: Final = ("webdataset", "datasets", "torchdata", "tensordict")
SEQUENCES: Final = ("x-transformers", "vector-quantize-pytorch")
TRACKERS: Final = ("optuna-integration", "wandb")
"""Of programs in one file, which imports them all."""


def in_order(
    name: str, program: str, packages: tuple[str, ...], exact: Mapping[str, float] = ONE, **others: Measure
) -> Case:
    """One whose data are not shuffled; `others` come first, by which the table shows it."""
    return Case(name, program, packages, {**others, "loss": others.get("loss", lower(0.1)), **SAVED}, exact=exact)


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
    in_order("gpytorch SVGP", "probabilistic.svgp", PROBABILISTIC),
    in_order("gpytorch SVGP, begun in configure_model", "probabilistic.begun_svgp", PROBABILISTIC),
    in_order("Pyro, regression", "probabilistic.pyro_regression", PROBABILISTIC, loss=lower(20.0)),
    in_order("zuko, autoregressive flow", "probabilistic.zuko_flow", PROBABILISTIC),
    in_order("snntorch", "dynamics.spiking", DYNAMICS),
    in_order("torchdiffeq, adjoint", "dynamics.ode", DYNAMICS),
    Case("torchsde", "dynamics.sde", DYNAMICS, {"loss": lower(0.1)}),
    in_order("geoopt, RiemannianSGD", "geometry.riemannian_sgd", GEOMETRY, off=lower(1e-4)),
    in_order("geoopt, RiemannianAdam", "geometry.riemannian_adam", GEOMETRY, off=lower(1e-4)),
    in_order("e3nn", "geometry.e3nn_vectors", GEOMETRY),
    in_order("kornia, deblurring", "geometry.kornia_deblurring", GEOMETRY),
    in_order("ema-pytorch", "averages.ema_inside", AVERAGES),
    in_order("torch-ema, swapped in validation", "averages.ema_beside", AVERAGES),
    Case("schedulefree", "optimization.schedule_free", OPTIMIZERS, {"loss": lower(0.1)}, exact=ONE),
    in_order("Prodigy", "optimization.prodigy", OPTIMIZERS),
    in_order("pytorch_optimizer AdaBelief", "optimization.adabelief", OPTIMIZERS),
    in_order("pytorch_optimizer SAM", "optimization.wrapped_sharpness_aware", OPTIMIZERS),
    in_order("SAM by hand", "optimization.sharpness_aware", OPTIMIZERS),
    in_order("own optimizer, `p.lr_mult`", "optimization.multiplied", OPTIMIZERS),
    in_order("wrapped step, clips the weights", "optimization.wrapped_step", OPTIMIZERS),
    in_order("step hook, clips the weights", "optimization.step_hook", OPTIMIZERS),
    in_order("webdataset, split by node", "streams.web_archives", STREAMS),
    in_order("datasets, a stream", "streams.hugging_face_stream", STREAMS),
    in_order("torchdata StatefulDataLoader", "streams.stateful_loader", STREAMS),
    in_order("tensordict", "streams.tensor_dicts", STREAMS),
    in_order("two training loaders", "streams.semi_supervised", STREAMS),
    in_order("x-transformers", "sequences.x_transformers", SEQUENCES),
    in_order("vector-quantize-pytorch", "sequences.codebook", SEQUENCES, exact={}, **APART),
    in_order("pytorch-tabnet", "tables.tabnet", ("pytorch-tabnet",), exact={"seen": 1e-5}),
    in_order("opacus PrivacyEngine", "privacy.opacus_engine", ("opacus",)),
    in_order("opacus, gradients clipped by hand", "privacy.opacus_by_hand", ("opacus",)),
    Case(
        "optuna-integration, pruning",
        "trackers.optuna_search",
        TRACKERS,
        {"loss": lower(0.1), "pruned": Measure("same", 0.0, ("single",))},
        exact={"loss": 1e-5},
    ),
    in_order("wandb, offline", "trackers.wandb_offline", TRACKERS, runs=Measure("same", 0.0, ("single",))),
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
