from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli.model_making import parameters
from scalebook.training.tracking.directions import direction
from scalebook.training.tracking.names import TRAIN_LOSS, VAL_CHRF, VAL_LOSS, main_metric
from scalebook.training.zoo.data.subwords import PADDING, learned
from scalebook.training.zoo.models import Translator
from tests.training.zoo.data.corpora import Sentences, sentences
from tests.training.zoo.models.fitting import fit

MODEL = {"class_path": "scalebook.training.zoo.models.Translator", "init_args": {"width": 16, "layers": 1, "heads": 2}}
ASYNC = "scalebook.training.lightning.AsyncPS"
CLOCK = {"gradient_s": {"kind": "gamma", "mean": 0.1, "cv": 0.2}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield {"class_path": "tests.training.zoo.data.corpora.Sentences", "init_args": {}}


def built() -> Translator:
    torch.manual_seed(0)
    model = Translator(width=16, layers=1, heads=2)
    model.build(learned([text for both in sentences() for text in both], 120))
    return model.eval()


def test_padding_and_what_comes_later_change_nothing() -> None:
    model = built()
    source, target = torch.randint(4, 120, (3, 6)), torch.randint(4, 120, (3, 5))
    logits = model(source, target)
    assert logits.shape == (3, 5, 120)
    padded = torch.nn.functional.pad(source, (0, 4), value=PADDING)
    torch.testing.assert_close(model(padded, target), logits)
    target[:, -1] = 4
    torch.testing.assert_close(model(source, target)[:, :-1], logits[:, :-1])
    assert not torch.allclose(model(source.flip(1), target)[:, 0], logits[:, 0])


def test_translations_of_an_untrained_one_have_an_end() -> None:
    model = built()
    assert model.subwords is not None
    model.embedding.weight.data[2] = -model.embedding.weight.data[2].abs() * 100  # END is never the likeliest
    written = []
    model.subwords.decode = lambda rows: written.append(rows) or [""] * len(rows)  # type: ignore[method-assign,func-returns-value]
    assert model.translate(torch.randint(4, 120, (2, 5))) == ["", ""]
    assert written[0].shape[1] <= 1 + 2 * 5 + 8


@pytest.fixture(scope="module")
def trained(corpus: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """After 40 passes over the 48 sentences; its folder holds the checkpoint `last.ckpt`."""
    model = {**MODEL, "init_args": {"width": 32, "layers": 1, "heads": 2, "dropout": 0.0}}
    folder = tmp_path_factory.mktemp("trained")
    cli = fit(folder, model, epochs=40, lr=0.01, data=corpus, trainer={"check_val_every_n_epoch": 40})
    cli.trainer.save_checkpoint(folder / "last.ckpt")
    assert isinstance(cli.model, Translator)
    return cli.model


def test_learns_to_say_what_it_has_not_seen(trained: Translator, corpus: dict[str, Any]) -> None:
    metrics = trained.trainer.callback_metrics
    assert metrics[VAL_CHRF] > 0.8
    assert metrics[VAL_LOSS] < 1
    assert metrics[TRAIN_LOSS] < 0.1
    data = Sentences(**corpus["init_args"])
    data.setup("fit")
    (batch,) = data.val_dataloader()
    assert trained.subwords is not None
    right = trained.subwords.decode(batch[1])
    assert sum(map(str.__eq__, trained.eval().predict_step(batch, 0), right)) >= 6


def test_validation_is_of_all_subwords(trained: Translator, corpus: dict[str, Any]) -> None:
    data = Sentences(**corpus["init_args"])
    data.setup("fit")
    ((source, target),) = data.val_dataloader()
    with torch.no_grad():
        logits = trained.eval()(source, target[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), target[:, 1:], ignore_index=PADDING)
    assert trained.trainer.callback_metrics[VAL_LOSS].item() == pytest.approx(loss.item(), rel=1e-4)


def test_a_checkpoint_brings_its_subwords(trained: Translator, corpus: dict[str, Any], tmp_path: Path) -> None:
    path = Path(trained.trainer.default_root_dir) / "last.ckpt"
    loaded = Translator.load_from_checkpoint(path, weights_only=True)
    data = Sentences(**corpus["init_args"])
    data.setup("fit")
    (batch,) = data.val_dataloader()
    assert loaded.eval().predict_step(batch, 0) == trained.eval().predict_step(batch, 0)
    model = {**MODEL, "init_args": {"width": 32, "layers": 1, "heads": 2, "dropout": 0.0}}
    other = {**corpus, "init_args": {**corpus["init_args"], "vocabulary": 110}}
    with pytest.raises(ConfigError, match=r"^ckpt_path: was trained with other subwords"):
        fit(tmp_path, model, epochs=41, data=other, ckpt_path=path)


STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp_fork", "devices": 2},
    "server": {"strategy": {"class_path": ASYNC, "init_args": {"workers": 2}}},
    "virtual": {"strategy": {"class_path": ASYNC, "init_args": {"workers": 2, "host": "virtual", "clock": CLOCK}}},
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", STRATEGIES)
def test_trains_with_several_workers(name: str, corpus: dict[str, Any], tmp_path: Path) -> None:
    metrics = fit(tmp_path, MODEL, 3, 0.01, data=corpus, trainer=STRATEGIES[name]).trainer.callback_metrics
    assert 0 < metrics[VAL_LOSS] < 4.3, "untrained: 4.8, the logarithm of 120"
    assert 0 <= metrics[VAL_CHRF] <= 1


def test_images_are_refused_by_name(tmp_path: Path) -> None:
    told = r"^data: Digits has no sentences in two languages, but Translator learns from them\. Choose Messages"
    with pytest.raises(ConfigError, match=told):
        fit(tmp_path, MODEL)


def test_its_parameters_are_told_without_training(corpus: dict[str, Any]) -> None:
    found = parameters({"model": MODEL, "data": corpus})
    assert found.problem == ""
    assert found.parameters[0].shape == [120, 16]


def test_heads_share_the_width() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^model\.init_args\.width: is 20, .* Choose a multiple of 6, or another number "
        r"of heads\.$",
    ):
        Translator(width=20, heads=3)


def test_runs_are_judged_by_chrf() -> None:
    assert main_metric([TRAIN_LOSS, VAL_LOSS, VAL_CHRF]) == VAL_CHRF
    assert not direction(VAL_CHRF).lower
