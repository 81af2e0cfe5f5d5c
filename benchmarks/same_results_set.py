"""The cells with which `benchmarks.same_results` holds two commits against each other: fits, a search, a notebook.

Each is exact: run twice, it gives the same bits. One worker makes all updates, or two are averaged (a sum of two is the
same in either order), or one process simulates all workers. A search runs one trial at a time.
"""

import json
from typing import Any, Final

Config = dict[str, Any]
EPOCHS: Final = 2
IMAGES: Final = 96
"""With batches of 16: 12 updates in one process, 6 with two workers."""

SGD: Final[Config] = {"class_path": "SGD", "init_args": {"lr": 0.05}}
MOMENTUM: Final[Config] = {"class_path": "SGD", "init_args": {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.001}}
NESTEROV: Final[Config] = {"class_path": "SGD", "init_args": {"lr": 0.02, "momentum": 0.9, "nesterov": True}}
ADAM: Final[Config] = {"class_path": "Adam", "init_args": {"lr": 0.003}}
ADAMW: Final[Config] = {"class_path": "AdamW", "init_args": {"lr": 0.003}}
LARS: Final[Config] = {"class_path": "LARS", "init_args": {"lr": 1.0}}
LAMB: Final[Config] = {"class_path": "LAMB", "init_args": {"lr": 0.01}}
LINEAR: Final[Config] = {"rule": "linear", "per": 8, "warmup_epochs": 1.0}
ROOT: Final[Config] = {"rule": "sqrt", "per": 4}
STEPS: Final[Config] = {"class_path": "StepLR", "init_args": {"step_size": 1, "gamma": 0.5}}
COSINE: Final[Config] = {"class_path": "CosineAnnealingLR", "init_args": {"T_max": 2}}


def config(model: str | Config, optimizer: Config, strategy: Any = "auto", *, seed: int = 1, **more: Any) -> Config:
    """A whole fit. `more`: top-level keys of the config, or arguments of the Trainer."""
    top: Config = {key: more.pop(key) for key in ("data", "lr_scaling", "lr_scheduler", "noise_scale") if key in more}
    devices = more.pop("devices", 2 if strategy == "ddp" else 1)
    trainer = {"max_epochs": EPOCHS, "accelerator": "cpu", "log_every_n_steps": 1, "strategy": strategy, **more}
    return {
        "seed_everything": seed,
        "trainer": {**trainer, "devices": devices},
        "model": {"class_path": model} if isinstance(model, str) else model,
        "data": {"class_path": "Digits", "init_args": {"batch_size": 16, "limit": IMAGES}},
        "optimizer": optimizer,
        **top,
    }


def server(rule: str = "Async", damping: str | Config = "NoDamping", workers: int = 1, **arguments: Any) -> Config:
    """AsyncPS. Capitalised `arguments` are the rule's."""
    mine = {key.lower(): value for key, value in arguments.items() if key.isupper()}
    rest = {key: value for key, value in arguments.items() if not key.isupper()}
    damped = {"class_path": damping} if isinstance(damping, str) else damping
    alone = workers == 1 and arguments.get("host") != "virtual"  # of two the order of arrival differs
    record = {"record": "updates" if alone else "nothing"}
    init = {"rule": {"class_path": rule, "init_args": mine}, "damping": damped, "workers": workers, **record, **rest}
    return {"class_path": "AsyncPS", "init_args": init}


def machines(**arguments: Any) -> Config:
    """`sync` by two workers on two nodes; the second one pushes over the channel."""
    return server("Sync", record="nothing", **arguments)


def played(rule: str = "Async", workers: int = 4, **arguments: Any) -> Config:
    """Virtual workers, of which the fourth is slow."""
    slow = {"stragglers": {"3": 2.0}} if workers > 3 else {}
    return server(rule, workers=workers, host="virtual", clock={**CLOCK, **slow}, **arguments)


MLP: Final = "MLPClassifier"
CONV: Final = "ConvClassifier"
PIXEL: Final[Config] = {"class_path": "PixelCNN", "init_args": {"features": 8, "layers": 3}}
DROPOUT: Final[Config] = {"class_path": MLP, "init_args": {"hidden": 32, "dropout": 0.3}}
STALE: Final[Config] = {"local": {"class_path": "Downpour", "init_args": {"n_push": 1, "n_fetch": 4}}}
"""One worker that is up to three of its own updates behind, so that dampings have an effect."""
SUMS: Final[Config] = {"class_path": "Downpour", "init_args": {"n_push": 3, "n_fetch": 2}}
COMPENSATED: Final[Config] = {"class_path": "DelayCompensation", "init_args": {"strength": 0.5}}
ADAPTIVE: Final[Config] = {"class_path": "DelayCompensation", "init_args": {"strength": 1.0, "adaptive": True}}
DROPPED: Final[Config] = {"class_path": "DropAbove", "init_args": {"limit": 1}}
TWO: Final[Config] = {"num_nodes": 2}
PAIR: Final[Config] = {"rule": "Sync", "workers": 2}
SERVERS: Final[Config] = {"shards": 2, "host": "process"}
TWICE: Final[Config] = {"accumulate_grad_batches": 2}
BF16: Final[Config] = {"precision": "bf16-mixed"}
BY_VALUE: Final[Config] = {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"}
ADAGRAD: Final[Config] = {"class_path": "Adagrad", "init_args": {"lr": 0.1}}
SPARSE: Final[Config] = {"class_path": "Ranker", "init_args": {"rows": 2000, "width": 8, "sparse": True}}
TEXTS: Final[Config] = {
    "class_path": "Docstrings",
    "init_args": {"batch_size": 16, "limit": IMAGES, "document_ngrams": 32},
}
ROWS: Final[Config] = {"data": TEXTS}
CLOCK: Final[Config] = {
    "gradient_s": {"kind": "gamma", "mean": 0.1, "cv": 0.3}, "server_s": 0.01,
    "link": {"latency_s": 1e-3, "bandwidth": 1e7}, "server_link": {"latency_s": 0.0, "bandwidth": 4e7},
}  # fmt: skip
LOCAL: Final[Config] = {"class_path": "LocalSGD", "init_args": {"every": 2}}
DILOCO: Final[Config] = {"class_path": "DiLoCo", "init_args": {"every": 2}}
TOP: Final[Config] = {"class_path": "TopK", "init_args": {"share": 0.05}}
FRAMES: Final[Config] = {"push_codec": TOP, "pull_codec": "int8"}

CONFIGS: Final[dict[str, Config]] = {
    "one process, SGD": config(MLP, SGD),
    "one process, Nesterov, convolutions": config(CONV, NESTEROV),
    "one process, Adam, PixelCNN": config(PIXEL, ADAM),
    "one process, LARS, linear scaling, warm-up": config(MLP, LARS, lr_scaling=LINEAR),
    "one process, LAMB, root scaling, seed 3": config(CONV, LAMB, lr_scaling=ROOT, seed=3),
    "one process, momentum, step schedule, clipped": config(MLP, MOMENTUM, lr_scheduler=STEPS, gradient_clip_val=0.5),
    "one process, Adam, bf16, 2 accumulated": config(CONV, ADAM, **BF16, **TWICE),
    "one process, dropout, noise scale": config(DROPOUT, SGD, noise_scale=True, seed=7),
    "DDP x 2, SGD": config(MLP, SGD, "ddp"),
    "DDP x 2, Adam, clipped, PixelCNN": config(PIXEL, ADAM, "ddp", gradient_clip_val=1.0),
    "DDP x 2, LARS, linear scaling, 2 accumulated": config(CONV, LARS, "ddp", lr_scaling=LINEAR, **TWICE),
    "DDP x 2, LAMB, bf16, cosine schedule": config(MLP, LAMB, "ddp", **BF16, lr_scheduler=COSINE),
    "async, SGD": config(MLP, SGD, server()),
    "async, Adam, 3 servers, PixelCNN": config(PIXEL, ADAM, server(shards=3, host="process")),
    "async, momentum, push every 3, pull every 2": config(MLP, MOMENTUM, server(local=SUMS)),
    "async, LARS, dropout, scaled, warm-up": config(DROPOUT, LARS, server(), lr_scaling=LINEAR),
    "async, bf16, clipped by value, 2 shards": config(CONV, ADAM, server(shards=2), **BF16, **BY_VALUE),
    "async, Nesterov, 1 server": config(MLP, NESTEROV, server(host="process")),
    "async, inverse": config(MLP, MOMENTUM, server(damping="Inverse", **STALE)),
    "async, drop above 1, norms": config(CONV, ADAM, server(damping=DROPPED, record="drift", **STALE)),
    "async, compensated, norms": config(MLP, SGD, server(damping=COMPENSATED, record="drift", **STALE)),
    "async, compensated adaptively, 2 servers": config(CONV, ADAMW, server(damping=ADAPTIVE, **SERVERS, **STALE)),
    "bounded, LAMB, 2 shards, 4 warm-up updates": config(MLP, LAMB, server("Bounded", shards=2, warmup_updates=4)),
    "softsync of 2, Adam, schedule": config(MLP, ADAM, server("Softsync", AVERAGE=2), lr_scheduler=COSINE),
    "softsync of 3, 2 servers, inverse": config(CONV, MOMENTUM, server("Softsync", "Inverse", AVERAGE=3, **SERVERS)),
    "sync, momentum, clipped, 2 accumulated": config(CONV, MOMENTUM, server("Sync"), gradient_clip_val=0.5, **TWICE),
    "sync x 2, SGD": config(MLP, SGD, server(**PAIR)),
    "sync x 2, Adam, clipped, 2 servers": config(CONV, ADAM, server(**PAIR, **SERVERS), gradient_clip_val=1.0),
    "sync x 2, LARS, linear scaling, warm-up, PixelCNN": config(PIXEL, LARS, server(**PAIR), lr_scaling=LINEAR),
    "sync x 2, LAMB, bf16, schedule, seed 5": config(
        MLP, LAMB, server(**PAIR, record="drift"), **BF16, lr_scheduler=STEPS, seed=5
    ),
    "sync x 2, local SGD every 2": config(MLP, SGD, server(**PAIR, local=LOCAL)),
    "sync x 2, DiLoCo, own Adam, 2 servers": config(CONV, ADAM, server(**PAIR, local=DILOCO, **SERVERS)),
    "async, elastic averaging": config(MLP, SGD, server(local={"class_path": "Elastic", "init_args": {"every": 2}})),
    "async, steps of significance": config(MLP, SGD, server(local="significance")),
    "one process, sparse rows": config(SPARSE, ADAGRAD, **ROWS),
    "async, sparse rows, 2 shards": config(SPARSE, ADAGRAD, server(shards=2), **ROWS),
    "sync x 2, sparse rows, SGD": config(SPARSE, SGD, server(**PAIR), **ROWS),
    "async, PowerSGD": config(CONV, MOMENTUM, server(push_codec="powersgd")),
    "async, random levels, bf16 pulls, 1 server": config(
        MLP, SGD, server(push_codec="qsgd", pull_codec="bf16", host="process")
    ),
    "sync x 2, signs": config(CONV, SGD, server(**PAIR, push_codec="sign")),
    "DDP x 2, top 5 %": config(  # by its path in version 0.1, which both read
        MLP, SGD, {"class_path": "scalebook.training.strategies.DDP", "init_args": {"codec": TOP}}, devices=2
    ),
    "virtual x 4, async, momentum": config(MLP, MOMENTUM, played()),
    "virtual x 4, bounded, top 5 %, int8 differences": config(MLP, SGD, played("Bounded", **FRAMES)),
    "virtual x 4, sync, one to spare, PowerSGD": config(
        CONV, ADAM, played("Sync", BACKUP_WORKERS=1, CANCEL=True, push_codec="powersgd", shards=2)
    ),
    "virtual x 4, softsync, random levels, inverse": config(
        MLP, SGD, played("Softsync", damping="Inverse", AVERAGE=2, push_codec="qsgd")
    ),
    "virtual x 4, DiLoCo, top 5 %": config(MLP, ADAM, played("Sync", local=DILOCO, push_codec=TOP)),
    "virtual x 4, async, sparse rows": config(SPARSE, ADAGRAD, played(), **ROWS),
    "two machines, DDP": config(MLP, SGD, "ddp", devices=1, **TWO),
    "two machines, momentum, 2 servers": config(MLP, MOMENTUM, machines(**SERVERS), **TWO),
    "two machines, Adam, clipped, PixelCNN": config(PIXEL, ADAM, machines(), gradient_clip_val=1.0, **TWO),
    "two machines, top 5 %, int8 differences": config(MLP, SGD, machines(**FRAMES), **TWO),
    "two machines, DiLoCo, own Adam, PowerSGD": config(MLP, ADAM, machines(local=DILOCO, push_codec="powersgd"), **TWO),
    "two machines, sparse rows": config(SPARSE, SGD, machines(), **ROWS, **TWO),
}
"""Fits."""

SEARCHED: Final[Config] = {
    "config": config(MLP, SGD), "objective": "val/loss", "exclusive": True, "scaling": "weak",
    "space": {"learning_rate": {"log_uniform": [0.001, 1.0]}, "batch_size": {"powers_of_two": [8, 32]}},
    "sampler": "tpe", "trials": 12,
}  # fmt: skip
SEARCHES: Final[dict[str, Config]] = {"search, 12 trials by TPE": SEARCHED}
"""Bodies of searches."""


def _cells(experiments: dict[str, Config], claims: dict[str, Config]) -> str:
    """A notebook's text, with configs as JSON, which is YAML; each claim has a place for its results."""
    cells = [f"```yaml experiment={name}\n{json.dumps(one)}\n```\n" for name, one in experiments.items()]
    for name, one in claims.items():
        cells.append(f"```yaml claim={name}\n{json.dumps(one)}\n```\n")
        cells.append(f"<!-- results: {name} -->\n<!-- end of results -->\n")
    return "\n".join(cells)


def _claim(figure: str, *runs: str, **more: Any) -> Config:
    return {"runs": list(runs), "against": "one", "figure": figure, **more}


NOTEBOOKS: Final[dict[str, str]] = {
    "notebook, 3 claims of 9 runs": _cells(
        {
            "one": {"repeats": 3, "config": config(MLP, SGD, played(workers=1))},
            "four": {"repeats": 3, "config": config(MLP, SGD, played())},
            "slow": {"repeats": 3, "config": config(MLP, {"class_path": "SGD", "init_args": {"lr": 0.01}})},
        },
        {
            "faster": _claim("updates_per_second", "four", at_least=2),
            "reached": _claim("updates", "slow", "four", metric="val/loss", target=2.2, at_least=1.5),
            "best": _claim("best", "slow", metric="val/loss", at_most=1.0),
        },
    )
}
"""Notebooks that are run as a whole, with their results written."""

CELLS: Final[dict[str, Any]] = {**CONFIGS, **SEARCHES, **NOTEBOOKS}
