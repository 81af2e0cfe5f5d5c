"""Other people's optimizers under AsyncPS: which hold bit for bit with one worker, and train with two.

    python -m venv /tmp/clients && /tmp/clients/bin/pip install -e . pytorch_optimizer schedulefree prodigyopt \
        lion-pytorch adan-pytorch pytorch-ranger transformers bitsandbytes
    /tmp/clients/bin/python -m tests.clients.optimizers [name ...]

Each is called with its parameters alone, as `configure_optimizers` does it in a quick start. Of one that a plain Trainer
cannot train so, nothing is asked. Verdicts: `holds` (one worker: the weights, the checkpoint's optimizer and the weights
after a resume are those of a plain Trainer, to the last bit; two workers: no error, and the loss falls where it does in
a plain Trainer), `refused` (by a ValueError of ours, for both), and what differs.
"""

import logging
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalebook.training.strategies import AsyncPS
from tests.training.strategies.contract.models import Plain
from tests.training.strategies.small import loader, trainer

Make = Callable[[list[torch.nn.Parameter]], Optimizer]
STEPS = 24  # two epochs of 96 samples, 8 a batch


class Own(Plain):
    """With this optimizer, and its modes where it has such (schedule-free ones)."""

    def __init__(self, make: Make) -> None:
        super().__init__(lambda model: make(list(model.parameters())))

    def _mode(self, name: str) -> None:
        optimizer: Any = self.optimizers()
        if "train_mode" in optimizer.param_groups[0]:
            getattr(optimizer, name)()

    def on_train_epoch_start(self) -> None:
        self._mode("train")

    def on_validation_start(self) -> None:
        self._mode("eval")

    def on_validation_end(self) -> None:
        self._mode("train")


def everybody() -> Iterator[tuple[str, Make]]:
    """By name; as the packages export them."""
    import pytorch_optimizer

    for name in pytorch_optimizer.get_supported_optimizers():
        kind = pytorch_optimizer.load_optimizer(name)
        yield name, kind
    yield "po:lookahead", lambda ps: pytorch_optimizer.Lookahead(torch.optim.Adam(ps))
    import adan_pytorch
    import lion_pytorch
    import prodigyopt
    import pytorch_ranger
    import schedulefree
    import transformers

    for name in ("SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree"):
        yield f"schedulefree:{name}", getattr(schedulefree, name)
    yield "prodigyopt:Prodigy", prodigyopt.Prodigy
    yield "lion_pytorch:Lion", lion_pytorch.Lion
    yield "adan_pytorch:Adan", adan_pytorch.Adan
    yield "pytorch_ranger:Ranger", pytorch_ranger.Ranger
    yield "transformers:Adafactor", transformers.Adafactor
    yield (
        "transformers:Adafactor,lr",
        lambda ps: transformers.Adafactor(ps, lr=0.01, relative_step=False, scale_parameter=False),
    )
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        yield f"torch:{kind.__name__},fused", lambda ps, kind=kind: kind(ps, lr=0.01, fused=True)
    for kind in (torch.optim.Adam, torch.optim.RAdam, torch.optim.NAdam, torch.optim.Rprop, torch.optim.Adafactor):
        yield f"torch:{kind.__name__},foreach", lambda ps, kind=kind: kind(ps, lr=0.01, foreach=True)
    yield "torch:Adam,capturable", lambda ps: torch.optim.Adam(ps, capturable=True)
    yield "torch:Adam,tensor", lambda ps: torch.optim.Adam(ps, lr=torch.tensor(0.01))
    yield "torch:ASGD", torch.optim.ASGD
    yield "torch:Muon", lambda ps: torch.optim.Muon([p for p in ps if p.dim() == 2])
    try:
        import bitsandbytes

        for name in ("Adam8bit", "AdamW8bit", "Lion8bit", "SGD8bit"):
            yield f"bitsandbytes:{name}", getattr(bitsandbytes.optim, name)
    except (ImportError, RuntimeError) as error:
        print("bitsandbytes:", error)


def loss_of(model: Plain) -> float:
    with torch.no_grad():
        batches = [(batch[0], batch[1]) for batch in loader()]
        return float(sum(cross_entropy(model.net(x), y) for x, y in batches)) / len(batches)


def fitted(make: Make, strategy: Any, folder: Path, epochs: int = 2, path: Any = None) -> tuple[Plain, Trainer]:
    model, made = Own(make), trainer(folder, strategy, max_epochs=epochs, limit_val_batches=1, num_sanity_val_steps=0)
    made.fit(model, loader(), loader(samples=8), ckpt_path=path, weights_only=False)
    return model, made


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b or a != a)


def sorted_keys(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: sorted_keys(state[key]) for key in sorted(state, key=str)}
    return [sorted_keys(item) for item in state] if isinstance(state, list) else state


def verdict(make: Make) -> str:
    """In a word or two; what differs, or is said, behind it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        before = loss_of(Own(make))
        try:
            plain, of_plain = fitted(make, "auto", folder)
            plain_state = of_plain.optimizers[0].state_dict()
            checkpoint = folder / "plain.ckpt"
            of_plain.save_checkpoint(checkpoint)
        except Exception as error:
            return f"not plain: {type(error).__name__}: {error}"[:160]
        return f"{alone(make, plain, plain_state, folder)}; {two(make, before, loss_of(plain), folder)}"


def alone(make: Make, plain: Plain, plain_state: dict[str, Any], folder: Path) -> str:
    try:
        one, of_one = fitted(make, AsyncPS(), folder)
        of_one.save_checkpoint(folder / "one.ckpt")
    except ValueError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"[:200]
    if not same(list(plain.state_dict().values()), list(one.state_dict().values())):
        return "weights differ"
    found = torch.load(folder / "one.ckpt", weights_only=False)["optimizer_states"][0]
    if not same(sorted_keys(found), sorted_keys(plain_state)):
        return "checkpoint differs"
    try:
        expected = fitted(make, "auto", folder, 3, folder / "plain.ckpt")[0].state_dict()
    except Exception as error:
        return f"holds (plain cannot resume: {type(error).__name__})"
    for strategy, path in ((AsyncPS(), "one"), (AsyncPS(), "plain"), ("auto", "one")):
        try:
            resumed = fitted(make, strategy, folder, 3, folder / f"{path}.ckpt")[0].state_dict()
        except Exception as error:
            return f"resume from {path}: {type(error).__name__}: {error}"[:200]
        if not same(list(expected.values()), list(resumed.values())):
            return f"resume from {path} in {strategy} differs"
    return "holds"


def two(make: Make, before: float, plain: float, folder: Path) -> str:
    try:
        model, _ = fitted(make, AsyncPS(workers=2, deadline_s=30), folder, epochs=6)
    except ValueError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"[:200]
    after = loss_of(model)
    if after < before or (plain >= before and after < 2 * before) or after <= plain:
        return "trains"
    return f"does not train: {before:.3f} to {after:.3f}, plain {plain:.3f}"


def main(names: list[str]) -> None:
    """Print a table, and counts by verdict."""
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for name, make in everybody():
        if names and name not in names:
            continue
        began = time.monotonic()
        found = verdict(make)
        short = (
            ";".join(part.split(":")[0] for part in found.split("; ")) if not found.startswith("not") else "not plain"
        )
        counts[short] += 1
        print(f"{name:32} {time.monotonic() - began:5.1f} s  {found}", flush=True)
    for short, count in counts.most_common():
        print(f"{count:4} {short}")


if __name__ == "__main__":
    main(sys.argv[1:])
