"""Other people's optimizers under AsyncPS: which hold bit for bit with one worker, and train with two.

    python -m venv /tmp/clients && /tmp/clients/bin/pip install -e . pytorch_optimizer schedulefree prodigyopt \
        lion-pytorch adan-pytorch pytorch-ranger transformers bitsandbytes
    /tmp/clients/bin/python -m tests.clients.optimizers [name ...]

Each is called with its parameters alone, as in a quick start. Of one that a plain Trainer cannot train so, nothing is
asked. Verdicts: `holds; trains` (one worker: the weights, the optimizer in the checkpoint and the weights after a
resume are those of a plain Trainer, to the last bit; two workers: no error, and the loss falls, or ends where a plain
Trainer's does), `refused` (by an error of ours that says why), and what differs.
"""

import importlib
import logging
import pickle
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import loader, trainer

Make = Callable[[list[torch.nn.Parameter]], Optimizer]
NAMED: Final = {
    "schedulefree": ("SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree"),
    "prodigyopt": ("Prodigy",),
    "lion_pytorch": ("Lion",),
    "adan_pytorch": ("Adan",),
    "pytorch_ranger": ("Ranger",),
    "transformers": ("Adafactor",),
    "bitsandbytes.optim": ("Adam8bit", "AdamW8bit", "Lion8bit"),
    "torch.optim": ("ASGD",),
}


class Own(Plain):
    """With this optimizer, in the mode that it is to be in where it has modes (schedule-free ones); writes a checkpoint
    at the end."""

    def __init__(self, make: Make, path: Path | None = None) -> None:
        super().__init__(lambda model: make(list(model.parameters())))
        self.path = path

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

    def on_train_end(self) -> None:
        if self.path is not None:
            self.trainer.save_checkpoint(self.path)


def everybody() -> Iterator[tuple[str, Make]]:
    """By name."""
    package = importlib.import_module("pytorch_optimizer")
    for name in package.get_supported_optimizers():
        yield name, package.load_optimizer(name)
    yield "lookahead", lambda parameters: package.Lookahead(torch.optim.Adam(parameters))
    for module, names in NAMED.items():
        for name in names:
            yield f"{module}.{name}", getattr(importlib.import_module(module), name)
    adafactor = importlib.import_module("transformers").Adafactor
    yield "Adafactor, lr", partial(adafactor, lr=0.01, relative_step=False, scale_parameter=False)
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        yield f"{kind.__name__}, fused", partial(kind, lr=0.01, fused=True)
    for one in (torch.optim.Adam, torch.optim.RAdam, torch.optim.NAdam, torch.optim.Rprop, torch.optim.Adafactor):
        yield f"{one.__name__}, foreach", partial(one, lr=0.01, foreach=True)
    yield "Adam, capturable", partial(torch.optim.Adam, capturable=True)
    yield "Adam, lr a tensor", partial(torch.optim.Adam, lr=torch.tensor(0.01))
    yield "Muon, matrices", lambda parameters: torch.optim.Muon([p for p in parameters if p.dim() == 2])


def loss_of(model: Plain) -> float:
    with torch.no_grad():
        batches = [(batch[0], batch[1]) for batch in loader()]
        return float(sum(cross_entropy(model.net(x), y) for x, y in batches)) / len(batches)


def fitted(make: Make, strategy: Any, epochs: int, to: Path | None = None, begin: Path | None = None) -> Plain:
    """A model that has been trained, from checkpoint `begin` on, and has written another `to`."""
    model = Own(make, to)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"max_epochs": epochs, "limit_val_batches": 1, "num_sanity_val_steps": 0}
        made = trainer(Path(folder), strategy, **settings)
        made.fit(model, loader(), loader(samples=8), ckpt_path=begin)
    return model


def attempt(make: Make, *arguments: Any) -> Plain | str:
    """`fitted`, or what is said instead."""
    try:
        return fitted(make, *arguments)
    except Exception as error:  # noqa: BLE001  # of whatever package
        ours = isinstance(error, ValueError) and str(error).startswith(("optimizer: ", "model: ", "trainer."))
        said = " ".join(str(error).split())[:150]
        return f"{'refused' if ours else 'fails'}: {type(error).__name__}: {said}"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b or a != a)


def optimizer_in(path: Path) -> Any:
    """The optimizer's part of a checkpoint; None where it has objects that only their own code can make."""
    try:
        return torch.load(path, weights_only=True)["optimizer_states"][0]
    except pickle.UnpicklingError:
        return None


def verdict(make: Make) -> str:
    """In a word or two for one worker and for two, and what is said."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "plain.ckpt"
        plain = attempt(make, "auto", 2, path)
        if isinstance(plain, str):
            return f"not plain: {plain}"
        return f"{alone(make, plain, path)}; {two(make)}"


def alone(make: Make, plain: Plain, path: Path) -> str:
    ours = path.with_name("ours.ckpt")
    one = attempt(make, AsyncPS(), 2, ours)
    if isinstance(one, str):
        return one
    if not same_weights(plain, one):
        return "weights differ"
    expected, found = optimizer_in(path), optimizer_in(ours)
    if not same(expected, found):
        return "checkpoint differs"
    resumed = attempt(make, "auto", 3, None, path)
    if expected is None or isinstance(resumed, str):
        return "holds"  # nobody resumes it
    for strategy, begin in ((AsyncPS(), ours), (AsyncPS(), path), ("auto", ours)):
        again = attempt(make, strategy, 3, None, begin)
        if isinstance(again, str):
            return f"resume {again}"
        if not same_weights(resumed, again):
            return "resume differs"
    return "holds"


def same_weights(one: Plain, other: Plain) -> bool:
    return same(list(one.state_dict().values()), list(other.state_dict().values()))


def two(make: Make) -> str:
    model, plain = attempt(make, AsyncPS(workers=2, limits=Limits(deadline_s=30)), 6), attempt(make, "auto", 6)
    if isinstance(model, str):
        return model
    before, after = loss_of(Own(make)), loss_of(model)
    of_plain = loss_of(plain) if not isinstance(plain, str) else before
    if after < before or after < 1.5 * of_plain:
        return "trains"
    return f"does not train: {before:.3f} to {after:.3f}, plain {of_plain:.3f}"


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
        short = "not plain" if found.startswith("not") else "; ".join(p.split(":")[0] for p in found.split("; ")[:2])
        counts[short] += 1
        print(f"{name:32} {time.monotonic() - began:5.1f} s  {found}", flush=True)
    for short, count in counts.most_common():
        print(f"{count:4} {short}")


if __name__ == "__main__":
    main(sys.argv[1:])
