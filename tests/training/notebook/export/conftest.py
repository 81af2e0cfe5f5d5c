"""A notebook with results of every kind, made once; and one from a stranger."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import store
from scalebook.training.notebook.export.document import Document
from scalebook.training.notebook.export.gathering import gather
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.app import searches
from tests.app.recorded import config, record
from tests.shared_files import Prepared

TEXT = """---
title: First steps
---
# Does staleness hurt?

A *question*, with a [link](https://example.org/paper) and a table:

| a | b |
|---|---|
| 1 | 2 |

```yaml experiment=pixelcnn-async-2
repeats: 2   # two seeds
config:
  seed_everything: 1
  trainer: {strategy: {class_path: AsyncPS, init_args: {rule: async}}, devices: 2, max_epochs: 5}
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits, init_args: {batch_size: 32}}
  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.001}}
```

```yaml experiment=earlier
config:
  trainer: {max_epochs: 3}
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits, init_args: {batch_size: 16}}
```

```yaml experiment=never
config:
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits}
```

```yaml comparison=both
runs: [pixelcnn-async-2, earlier]
metric: val/bits_per_dim
x: [updates, seconds]
target: 2.5
```

```yaml search=batch-size
experiment: pixelcnn-async-2
objective: val/loss
space: {batch_size: {powers_of_two: [16, 1024]}}
```
"""
VERSIONS = '{"python": "3.12.1", "torch": "2.9.0", "lightning": "2.6.4", "scalebook": "0.1.0"}'


@dataclass(frozen=True)
class Exported:
    """What a test needs to export the notebook again."""

    workspace: Workspace
    stored: Stored
    description: Description
    document: Document


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Exported:
    """Two seeds finished, one failed run of an earlier config, one never run, a comparison, a search of 120 trials."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        workspace = prepared.into(Workspace(tmp_path_factory.mktemp("workspace")))
        stored = written(workspace, TEXT)
        description = describe(workspace)
        cell = stored.notebook.experiment("pixelcnn-async-2")
        assert cell is not None
        now = config_hash(Experiment.read(cell.config, description))
        runs = [record(workspace, seed=seed, config_hash=now, level=1.9 + 0.1 * seed) for seed in (1, 2)]
        runs.append(record(workspace, cell="earlier", state="failed", what=config(1)))
        client = open_store(workspace)
        for run in runs:
            client.set_tag(run.id, names.TAG_VERSIONS, VERSIONS)
            client.set_tag(run.id, names.TAG_MACHINE, "8 cores, 2 x NVIDIA H100")
        client.set_tag(runs[2].id, names.TAG_CAUSE, f"no such file: {Path.home()}/data/x and /home/alice/y")
        client.set_tag(runs[2].id, names.TAG_FAILURE, "worker lost")
        spec = searches.spec()
        searches.folder(workspace, spec, searches.records(spec, 120))
        found = gather(workspace, RunReader(workspace.tracking_uri()), stored, description)
        return Exported(workspace, stored, description, found)


def written(workspace: Workspace, text: str, name: str = "first-steps.md") -> Stored:
    path = workspace.root / name
    path.write_text(text, encoding="utf-8")
    return store.read(path)
