from lightning import LightningModule

from scalebook.training.cli.logged import logged


class Base(LightningModule):
    def step(self, batch: object, stage: str) -> None:
        self.log(f"{stage}_loss", 1.0)
        self.log("train/other", 1.0)

    def validation_step(self, batch: object) -> None:
        self.log("never", 1.0)


class Mine(Base):
    def training_step(self, batch: object) -> None:
        self.step(batch, "train")
        self.log("loss", 1.0)

    def validation_step(self, batch: object) -> None:
        self.step(batch, stage="val")
        self.log(name="accuracy", value=1.0)
        self.log_dict({"val_f1": 1.0, "loss_of_all": 1.0})

    def test_step(self, batch: object) -> None:
        self.log("test/loss", 1.0)

    def on_train_epoch_end(self) -> None:
        self.log("val/late", 1.0)


class Runs(LightningModule):
    def validation_step(self, batch: object) -> None:
        for name in ("a", "b"):
            self.log(name, 1.0)
        self.print("val/printed")


def test_names_are_read_from_the_source() -> None:
    """Of the methods that are called; `val_loss` by way of the stage that `validation_step` passes on."""
    assert logged(Mine) == ["val_loss", "accuracy", "val_f1", "loss_of_all", "val/late"]


def test_what_only_a_run_tells_is_left_out() -> None:
    assert logged(Runs) == []
    assert logged(type("Made", (Runs,), {})) == []
