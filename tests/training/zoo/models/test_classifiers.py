import math
from pathlib import Path

import pytest
import torch

from scalebook.training.tracking.names import TRAIN_LOSS, VAL_ACCURACY, VAL_LOSS
from scalebook.training.zoo.data import Digits
from scalebook.training.zoo.models import ConvClassifier
from tests.training.zoo.models.fitting import fit


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "epochs", "least"), [("ConvClassifier", 8, 0.97), ("MLPClassifier", 8, 0.97)])
def test_learns_the_digits(name: str, epochs: int, least: float, tmp_path: Path) -> None:
    metrics = fit(
        tmp_path, {"class_path": f"scalebook.training.zoo.models.{name}"}, epochs=epochs
    ).trainer.callback_metrics
    assert metrics[VAL_ACCURACY] >= least
    assert metrics[VAL_LOSS] < 0.25
    assert metrics[TRAIN_LOSS] < 0.5


def test_validation_is_the_mean_over_images_whatever_the_batches(tmp_path: Path) -> None:
    data = {
        "class_path": "scalebook.training.zoo.data.Digits",
        "init_args": {"batch_size": 350},
    }  # batches of 350 and 10
    cli = fit(tmp_path, {"class_path": "scalebook.training.zoo.models.ConvClassifier"}, data=data)
    model, digits = cli.model.eval(), Digits()
    digits.setup("fit")
    images, labels = (torch.cat(parts) for parts in zip(*digits.val_dataloader(), strict=True))
    with torch.no_grad():
        logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    assert cli.trainer.callback_metrics[VAL_LOSS].item() == pytest.approx(loss, rel=1e-5)
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    assert cli.trainer.callback_metrics[VAL_ACCURACY].item() == pytest.approx(accuracy, abs=1e-6)


def test_an_untrained_classifier_is_at_chance() -> None:
    torch.manual_seed(0)
    data = Digits()
    data.setup("fit")
    model = ConvClassifier(images=data.images)
    images, labels = next(iter(data.val_dataloader()))
    loss = torch.nn.functional.cross_entropy(model(images), labels).item()
    assert loss == pytest.approx(math.log(10), abs=0.3)
    assert model.predict_step((images, labels), 0).shape == labels.shape
