"""Forecasts of pytorch-forecasting and gluonts, whose models are Lightning's modules and come with their data."""

from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.common import ListDataset
from gluonts.torch import DeepAREstimator
from lightning.pytorch import LightningModule, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from pytorch_forecasting import DeepAR, TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.data import GroupNormalizer
from pytorch_forecasting.metrics import NormalDistributionLoss, QuantileLoss

from tests.clients.case import Setting
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded

SERIES, LENGTH = 8, 60


def _waves() -> np.ndarray:
    """Sines of several phases with noise: (SERIES, LENGTH)."""
    draws = np.random.default_rng(3)
    phases = np.arange(SERIES)[:, None]
    return np.sin(np.arange(LENGTH)[None] / 3 + phases) + 0.1 * draws.standard_normal((SERIES, LENGTH)) + 3


class _Data:
    """Windows of the series: those before the last six steps to train on, the last to validate."""

    def __init__(self, **settings: Any) -> None:
        table = pd.DataFrame(
            [
                {"series": str(series), "time": time, "value": value, "month": str(time % 12)}
                for series, wave in enumerate(_waves())
                for time, value in enumerate(wave)
            ]
        )
        self.training = TimeSeriesDataSet(
            table[table.time < LENGTH - 6], time_idx="time", target="value", group_ids=["series"],
            max_encoder_length=12, max_prediction_length=6, static_categoricals=["series"],
            time_varying_unknown_reals=["value"], target_normalizer=GroupNormalizer(groups=["series"]), **settings,
        )  # fmt: skip
        self._validation = TimeSeriesDataSet.from_dataset(self.training, table, predict=True, stop_randomization=True)

    def train(self) -> Any:
        """Some 37 windows of each of 8 series: 37 batches of 8."""
        return self.training.to_dataloader(train=True, batch_size=8)

    def held_out(self) -> Any:
        return self._validation.to_dataloader(train=False, batch_size=4)


def _fit(setting: Setting, kind: Any, data: _Data, **settings: Any) -> dict[str, float]:
    def make() -> LightningModule:
        model: LightningModule = kind.from_dataset(data.training, learning_rate=0.01, **settings)
        return model

    model = seeded(make)
    callbacks = [EarlyStopping("val_loss", patience=10), LearningRateMonitor(), best(setting)]
    make_trainer(
        setting, callbacks, max_epochs=2, gradient_clip_val=0.1, logger=CSVLogger(setting.folder), log_every_n_steps=10
    ).fit(model, data.train(), data.held_out())
    return {"loss": plainly(model, data.held_out()), "saved": saved(setting, make, data.held_out())}


def tft(setting: Setting, optimizer: str = "adam") -> dict[str, float]:
    data = _Data(time_varying_known_categoricals=["month"], time_varying_known_reals=["time"])
    return _fit(
        setting, TemporalFusionTransformer, data, optimizer=optimizer, hidden_size=8, attention_head_size=1,
        hidden_continuous_size=4, loss=QuantileLoss(), log_interval=-1, reduce_on_plateau_patience=4,
    )  # fmt: skip


def tft_with_ranger(setting: Setting) -> dict[str, float]:
    """The optimizer that the library recommends, of pytorch_optimizer."""
    return tft(setting, "ranger")


def deepar(setting: Setting) -> dict[str, float]:
    settings = {"hidden_size": 8, "rnn_layers": 1, "loss": NormalDistributionLoss(), "log_interval": -1}
    return _fit(setting, DeepAR, _Data(), optimizer="adam", **settings)


def gluonts_deepar(setting: Setting) -> dict[str, float]:
    """The library makes the Trainer and its data, a stream of windows; `loss` is what it logs of the last epoch."""
    seed_everything(7, verbose=False)
    start = pd.Period("2020-01-01", freq="D")
    data = ListDataset([{"start": start, "target": wave} for wave in _waves()], freq="D")
    where = {**setting.trainer, "default_root_dir": str(setting.folder), "max_epochs": 4, "logger": False,
             "enable_progress_bar": False, "enable_model_summary": False}  # fmt: skip
    estimator = DeepAREstimator(
        freq="D", prediction_length=6, context_length=12, num_layers=1, hidden_size=8, batch_size=8,
        num_batches_per_epoch=15, lr=5e-3, trainer_kwargs=where,
    )  # fmt: skip
    made = estimator.train_model(data)
    return {"loss": float(made.trainer.callback_metrics["train_loss"])}
