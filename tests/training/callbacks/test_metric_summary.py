import torch
from torchmetrics import MeanMetric

from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.tracking import names
from tests.training.callbacks.small import Kept, OneWeight, loader, trainer


class Gains(MeanMetric):
    higher_is_better = True  # type: ignore[assignment]  # as torchmetrics' own metrics say it


class Own(OneWeight):
    def __init__(self) -> None:
        super().__init__()
        self.gains = Gains()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.log("train_loss", self.weight)
        return self.weight * 1.0

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.gains.update(self.weight)
        self.log("val_loss", self.weight)
        self.log("odd", self.gains)


def test_what_is_logged_while_validating_has_a_best_value_whatever_its_name() -> None:
    clock, kept = DataClock(), Kept()
    measure = Measure(clock)
    trainer(measure, logger=kept, profiler=clock, max_epochs=2).fit(Own(), loader())
    last = {name: value for _, points in kept.points for name, value in points.items()}
    finals = {name: round(measure.latest[f"final/{name}"], 4) for name in ("val_loss", "odd")}
    assert not any(name.startswith("final/") for name in last), "MLflow has them as the latest values"
    assert round(last["best/val_loss"], 4) == 9.2 == finals["val_loss"]
    assert (round(last["best/odd"], 4), finals["odd"]) == (9.6, 9.2)  # as torchmetrics says
    assert names.validation_metrics(last) == ["odd", "val_loss"]
    assert names.main_metric(last) == "val_loss"
    assert measure.summary.directions == {"odd": "max"}


def test_best_values_are_recorded_with_each_validation_that_improves_them() -> None:
    clock, kept = DataClock(), Kept()
    trainer(Measure(clock), logger=kept, profiler=clock, max_epochs=2).fit(Own(), loader())
    told = [points["best/val_loss"] for _, points in kept.points if "best/val_loss" in points]
    assert [round(value, 4) for value in told] == [9.6, 9.2, 9.2]
