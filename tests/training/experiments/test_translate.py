import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli.lightning_cli import TrainingCLI
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment

STOPPING = "lightning.pytorch.callbacks.EarlyStopping"


@pytest.mark.parametrize(
    ("callback", "key", "words"),
    [
        ({"class_path": "Nope"}, "trainer.callbacks", "Nope"),
        ({"class_path": STOPPING, "init_args": {"monitr": 1}}, "trainer.callbacks.monitr", "no argument"),
        ({"class_path": STOPPING}, "trainer.callbacks", "needs monitor"),
        ({"class_path": STOPPING, "init_args": {"monitor": "a", "patience": "x"}}, "trainer.callbacks.patience", "int"),
        ({"class_path": "no_such_module.Callback"}, "trainer.callbacks", "no_such_module"),
    ],
)
def test_what_the_parser_refuses_is_one_line_with_a_key(
    callback: object, key: str, words: str, description: Description
) -> None:
    config = Experiment(
        {"model": "PixelCNN", "data": "Digits", "trainer": {"callbacks": [callback]}}, description
    ).to_run()
    with pytest.raises(ConfigError) as caught:
        TrainingCLI("fit", config, None, run=False)
    assert caught.value.problem.key == key
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
