"""Checkpoints from addresses are refused before anything starts."""

from typing import Any

import pytest

from scalebook.training.experiments.confinement import is_address
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate

GOOD: dict[str, Any] = {"model": "PixelCNN", "data": "Digits"}
ADDRESSES = (
    "http://127.0.0.1/x.ckpt", "HTTPS://host/x", "s3://bucket/x", "gs://b/x", "hf://repo/x", "file:///tmp/x.ckpt",
    "file:x.ckpt", "memory://x", "zip://x::http://host/y", "simplecache::s3://b/x", "x::y", "data:text/plain,x",
    "registry", "registry:name:version:1", "Registry:x", " http://host/x", "httpx.ckpt", "a/b://c", "../x::http://y",
)  # fmt: skip
FILES = (
    "a.ckpt",
    "./httpx.ckpt",
    "/tmp/a=1-b:2.ckpt",
    "../runs/epoch=1 step=2.ckpt",
    "best",
    "last",
    "ü/x",
    "./registry",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_no_checkpoint(address: str, description: Description) -> None:
    assert is_address(address)
    (problem,) = validate(Experiment.read({**GOOD, "ckpt_path": address}, description))
    assert (problem.key, problem.severity) == ("ckpt_path", "error")
    assert problem.message == f"is the web address {address!r}, but checkpoints must be local files"
    assert problem.fix.startswith("Download the checkpoint from a source that you trust")


@pytest.mark.parametrize("path", FILES)
def test_a_file_is(path: str, description: Description) -> None:
    assert not is_address(path)
    assert validate(Experiment.read({**GOOD, "ckpt_path": path}, description)) == []


@pytest.mark.parametrize("name", ["ckpt_path", "checkpoint", "resume_from_checkpoint", "base_ckpt", "checkpoint_file"])
def test_also_those_deeper_in_the_config(name: str, description: Description) -> None:
    config = {**GOOD, "trainer": {"callbacks": [{"class_path": "x.Y", "init_args": {"a": [{name: "s3://b/x"}]}}]}}
    (problem,) = validate(Experiment.read(config, description))
    assert problem.key == f"trainer.callbacks.0.init_args.a.0.{name}"
    config["trainer"]["callbacks"][0]["init_args"] = {"save_on_train_epoch_end": "s3://b", "dataset": "https://host/x"}
    assert validate(Experiment.read(config, description)) == []


def test_a_checkpoint_is_a_text(description: Description) -> None:
    assert [str(one) for one in validate(Experiment.read({**GOOD, "ckpt_path": ["a.ckpt"]}, description))] == [
        "ckpt_path: is ['a.ckpt'], not a path. Use the path of a .ckpt file."
    ]
