"""The strategies for a Trainer of the package `pytorch_lightning`, which darts, neuralforecast, pytorch-tabular and
lightly are built on. Python treats it as a different package from `lightning`.

    from scalebook.pytorch_lightning import AsyncPS
    NHITS(..., strategy=AsyncPS(workers=2))

Import it before `from scalebook import AsyncPS`: a process can have the strategies of one package only.
"""

from scalebook.training.lightning import DDP, PACKAGE, AsyncPS, register

__all__ = ["DDP", "AsyncPS", "register"]

if PACKAGE != "pytorch_lightning":
    raise ImportError(
        "scalebook.pytorch_lightning: this process already has Scalebook's strategies of the package `lightning`, and "
        "can have those of one only. Import scalebook.pytorch_lightning first, or use Trainers of lightning.pytorch."
    )
