"""A folder whose names have spaces, slashes, quotes, umlauts: a package, its metrics, its notebook."""

NOTEBOOK = "Größe 'a' \"b\" [1].md"
FILES = {
    "mein_paket/__init__.py": "",
    "mein_paket/netze/__init__.py": "from .linie import Linie\n",
    "mein_paket/netze/linie.py": """
import lightning
import torch

from .. import werkzeug


class Linie(lightning.LightningModule):
    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.line = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        loss = werkzeug.fehler(self.line(batch[0])[:, 0], batch[1])
        self.log("Zug/Fehler im Mittel", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("Prüfung/mittlerer Fehler", werkzeug.fehler(self.line(batch[0])[:, 0], batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)
""",
    "mein_paket/werkzeug.py": "from torch.nn.functional import mse_loss as fehler\n",
    "mein_paket/anderes.py": "x = 1\n",
    "punkte.py": """
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Punkte(lightning.LightningDataModule):
    def train_dataloader(self):
        points = torch.randn(128, 2, generator=torch.Generator().manual_seed(1))
        return DataLoader(TensorDataset(points, points[:, 0] - points[:, 1]), 32)

    val_dataloader = train_dataloader
""",
    "scalebook.toml": 'modules = ["mein_paket.netze", "mein_paket.anderes", "punkte"]\n',
    NOTEBOOK: """# Größe

```yaml experiment=linie
config:
  model: mein_paket.netze.Linie
  data: punkte.Punkte
  trainer: {max_epochs: 2, accelerator: cpu}
```

```yaml comparison=vergleich
runs: [linie]
metric: Prüfung/mittlerer Fehler
```

```yaml claim=gut
runs: linie
figure: best
metric: Prüfung/mittlerer Fehler
at_most: 100
```

```yaml search=raten
experiment: linie
objective: {Prüfung/mittlerer Fehler: min}
trials: 2
sampler: random
space: {model.lr: {values: [0.01, 0.05]}}
```

```yaml claim=besser
search: raten
runs: {model.lr: 0.01}
figure: best
metric: Prüfung/mittlerer Fehler
at_most: 100
```
""",
}
