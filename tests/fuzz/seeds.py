"""What the mutants are made from: texts with all that configs, searches and notebooks may say."""
# ruff: noqa: E501 - tables

from typing import Final

CONFIG: Final = """seed_everything: 3
threads: 2
trainer:
  strategy:
    {class_path: scalebook.training.lightning.AsyncPS, init_args: {workers: 2, rule: {class_path: Bounded, init_args: {bound: 3}}}}
  devices: 2
  max_epochs: 3
  max_time: 00:00:10:00
  callbacks: []
  profiler: simple
  gradient_clip_val: 0.5
  val_check_interval: 0.5
  accelerator: cpu
model: {class_path: scalebook.training.zoo.models.MLPClassifier, init_args: {hidden: 16}}
data: {class_path: Digits, init_args: {batch_size: 32}}
optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.001, betas: [0.9, 0.999]}}
lr_scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 3}}
lr_scaling: {rule: linear, per: 64, warmup_epochs: 1}
noise_scale: true
"""
SEARCH: Final = """config:
  model: {class_path: MLPClassifier, init_args: {hidden: 16}}
  data: {class_path: Digits, init_args: {batch_size: 64}}
  trainer: {max_epochs: 1, accelerator: cpu}
objective: [val/loss, seconds]
target: 0.5
scaling: strong
space:
  batch_size: {powers_of_two: [16, 256]}
  learning_rate: {log_uniform: [0.001, 1.0], rule: linear, per: 64, warmup_epochs: 1}
  strategy: {values: [single, ddp, async]}
  workers: {powers_of_two: [1, 4]}
  model.hidden: {grid: [8, 16, 32]}
  optimizer.weight_decay: {uniform: [0, 0.1], points: 3}
sampler: {tpe: {seed: 2}}
pruner: none
trials: 20
seeds: 2
minutes: 10
seconds_per_trial: 5
exclusive: true
failures: 3
memory_mb: 500
points: [{batch_size: 64, learning_rate: 0.1}, {workers: 2}]
storage: journal:study.journal
"""
NOTEBOOK: Final = """---
title: A page
---

# Heading

Words with `code`.

```yaml experiment=one
repeats: 2   # seeds
config:
  model: {class_path: MLPClassifier, init_args: {hidden: 16}}
  data: {class_path: Digits, init_args: {batch_size: 64}}
  trainer: {max_epochs: 1, strategy: ddp, devices: 2}
```

- a list

```yaml comparison=both
runs: [one]
metric: val/accuracy
x: [updates, seconds]
target: 0.97
```

```yaml search=fine
experiment: one
space:
  batch_size: {powers_of_two: [16, 256]}
  learning_rate: {log_uniform: [0.001, 1.0]}
points: [{batch_size: 64}]
trials: 10
```
"""
ADDRESSES: Final = (
    "1",
    "2",
    "first-steps",
    "one",
    "0123456789abcdef0123456789abcdef",
    "val/loss",
    "a,b,c",
    "any state",
)
