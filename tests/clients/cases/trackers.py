"""Libraries that watch a training: a search that prunes, a tracker that records offline."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import optuna
import wandb
from lightning.pytorch.loggers import WandbLogger
from optuna_integration import PyTorchLightningPruningCallback
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order
from tests.clients.fitting import MONITOR, Simple, make_trainer, perceptron, seeded, trained


class Rated(Simple):
    """With a rate that is searched for."""

    def __init__(self, rate: float = 0.05) -> None:
        super().__init__()
        self.rate = rate
        self.net = perceptron()

    def loss(self, batch: Any) -> Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        if self.training:
            self.log("train_loss", loss)
        return loss


def optuna_search(setting: Setting) -> dict[str, float]:
    """`pruned`: the one of three trials that learns nothing."""

    def objective(trial: optuna.Trial) -> float:
        model = seeded(lambda: Rated(trial.suggest_float("rate", 1e-6, 1.0)))
        callback = PyTorchLightningPruningCallback(trial, MONITOR)
        of_trial = replace(setting, trainer=deepcopy(setting.trainer))  # a strategy is of one Trainer
        trainer = make_trainer(of_trial, [callback], enable_checkpointing=False)
        trainer.fit(model, in_order(setting, *clusters(240)), held_out())
        callback.check_pruned()
        return float(trainer.callback_metrics[MONITOR])

    study = optuna.create_study(
        storage=f"sqlite:///{setting.folder}/study.db", pruner=optuna.pruners.ThresholdPruner(upper=1.0),
        sampler=optuna.samplers.GridSampler({"rate": [0.02, 0.05, 1e-6]}, seed=0),
    )  # fmt: skip
    study.optimize(objective, n_trials=3)
    pruned = study.get_trials(states=(optuna.trial.TrialState.PRUNED,))
    return {"loss": study.best_value, "pruned": len(pruned)}


def wandb_offline(setting: Setting) -> dict[str, float]:
    """`runs`: how many were begun."""
    logger = WandbLogger(save_dir=setting.folder, offline=True)
    training = in_order(setting, *clusters(240))
    found = trained(setting, Rated, training, held_out(), logger=logger, log_every_n_steps=1)[1]
    wandb.finish()
    return {**found, "runs": len(list(setting.folder.glob("wandb/offline-run-*/*.wandb")))}
