"""scvi-tools: the library makes loaders, Trainer and training plan; its users call `train`."""

import numpy as np
import scvi
from anndata import AnnData
from lightning.pytorch import seed_everything

from tests.clients.case import Setting


def scvi_model(setting: Setting) -> dict[str, float]:
    """`elbo`: of all cells; `saved`: how far that of the saved and loaded model is from it, relative."""
    draws = np.random.default_rng(0)
    rates = np.exp(draws.normal(0, 1, (3, 30)))[np.arange(275) % 3]  # 3 kinds of cells; 0.9 of them are 31 batches of 8
    cells = AnnData(draws.poisson(rates).astype(np.float32))
    scvi.settings.logging_dir = str(setting.folder)
    seed_everything(7, verbose=False)
    scvi.model.SCVI.setup_anndata(cells)
    model = scvi.model.SCVI(cells, n_hidden=16, n_latent=4)
    model.train(
        max_epochs=4, batch_size=8, train_size=0.9, check_val_every_n_epoch=1, enable_progress_bar=False,
        default_root_dir=str(setting.folder), logger=False, **setting.trainer,
    )  # fmt: skip
    seed_everything(8, verbose=False)
    elbo = float(model.get_elbo())
    model.save(str(setting.folder / "saved"))
    loaded = scvi.model.SCVI.load(str(setting.folder / "saved"), cells)
    seed_everything(8, verbose=False)  # the library draws what it computes it from
    again = float(loaded.get_elbo())
    return {"elbo": elbo, "saved": abs(again - elbo) / abs(elbo)}
