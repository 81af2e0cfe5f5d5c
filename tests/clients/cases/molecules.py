"""chemprop: message passing over molecules, logged and scheduled by the library."""

import numpy as np
from chemprop import data, models, nn
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EarlyStopping

from tests.clients.case import Setting
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded


def _points(numbers: range) -> list[data.MoleculeDatapoint]:
    """Chains with a ring or an oxygen here and there; the target is the share of what is no carbon."""
    names = ["C" * (1 + number % 7) + "O" * (number % 3) + "CN" * (number % 2) + "C" for number in numbers]
    return [
        data.MoleculeDatapoint.from_smi(name, np.array([(name.count("O") + name.count("N")) / len(name)]))
        for name in names
    ]


def mpnn(setting: Setting) -> dict[str, float]:
    train, held_out = data.MoleculeDataset(_points(range(248))), data.MoleculeDataset(_points(range(300, 332)))
    scaler = train.normalize_targets()
    held_out.normalize_targets(scaler)
    loader = data.build_dataloader(held_out, batch_size=8, shuffle=False, num_workers=0)

    def make() -> LightningModule:
        head = nn.RegressionFFN(input_dim=32, output_transform=nn.UnscaleTransform.from_standard_scaler(scaler))
        model: LightningModule = models.MPNN(
            nn.BondMessagePassing(d_h=32, depth=2),
            nn.MeanAggregation(),
            head,
            batch_norm=True,
            metrics=[nn.metrics.RMSE()],
        )
        return model

    model = seeded(make)
    callbacks = [best(setting), EarlyStopping("val_loss", patience=10)]
    make_trainer(setting, callbacks, max_epochs=12).fit(
        model, data.build_dataloader(train, batch_size=8, num_workers=0), loader
    )
    return {"loss": plainly(model, loader), "saved": saved(setting, make, loader)}
