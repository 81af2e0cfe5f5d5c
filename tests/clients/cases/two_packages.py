"""Libraries built on the package pytorch_lightning, which has classes of the same names as lightning.pytorch."""

import darts
import numpy as np
import pandas as pd
from darts.models import TiDEModel
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS

from tests.clients.case import Setting

LENGTH, AHEAD = 150, 6


def _wave() -> np.ndarray:
    draws = np.random.default_rng(1)
    wave: np.ndarray = np.sin(np.arange(LENGTH) / 3) + 0.05 * draws.standard_normal(LENGTH)
    return wave


def neuralforecast_nhits(setting: Setting) -> dict[str, float]:
    """`mae`: of a forecast of what comes after the training."""
    wave = _wave()
    times = pd.date_range("2020-01-01", periods=LENGTH, freq="D")
    table = pd.concat([pd.DataFrame({"unique_id": str(one), "ds": times, "y": wave + one}) for one in range(8)])
    model = NHITS(
        h=AHEAD, input_size=12, max_steps=60, batch_size=4, windows_batch_size=32, mlp_units=[[16, 16]] * 3,
        random_seed=7, scaler_type="standard", enable_progress_bar=False, logger=False, enable_checkpointing=False,
        default_root_dir=str(setting.folder), **setting.trainer,
    )  # fmt: skip
    forecast = NeuralForecast(models=[model], freq="D")
    forecast.fit(table[table.ds < times[-AHEAD]])
    found = forecast.predict().sort_values(["unique_id", "ds"])["NHITS"].to_numpy().reshape(8, AHEAD)
    return {"mae": float(np.abs(found - (wave[-AHEAD:] + np.arange(8)[:, None])).mean())}


def darts_tide(setting: Setting) -> dict[str, float]:
    """`mae`: of a forecast of what comes after the training."""
    wave = _wave().astype(np.float32)
    series = darts.TimeSeries.from_values(wave)
    model = TiDEModel(
        input_chunk_length=12, output_chunk_length=AHEAD, hidden_size=16, n_epochs=4, batch_size=4, random_state=7,
        work_dir=str(setting.folder), save_checkpoints=False,
        pl_trainer_kwargs={"enable_progress_bar": False, "logger": False, **setting.trainer},
    )  # fmt: skip
    model.fit(series[:-AHEAD])
    found = model.predict(AHEAD).values()[:, 0]
    return {"mae": float(np.abs(found - wave[-AHEAD:]).mean())}
