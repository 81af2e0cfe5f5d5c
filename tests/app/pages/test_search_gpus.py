"""A search whose trials want more GPUs than there are: on its card, and where it is set up."""

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.training.base.workspace import Workspace
from tests.app.pages.conftest import TEXT, Open
from tests.training.jobs.fake_nvml import Put, eight

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("looked_at")]

SEARCH = """
```yaml search=workers
config:
  trainer: {strategy: STRATEGY, devices: 2, max_epochs: 1ACCELERATOR}
  model: {class_path: scalebook.training.zoo.models.MLPClassifier}
  data: {class_path: scalebook.training.zoo.data.Digits, init_args: {batch_size: 32}}
  optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}
objective: val/loss
space:
  workers: {powers_of_two: [1, 4]}
trials: 4
```
"""


def write(workspace: Workspace, strategy: str, accelerator: str = "") -> None:
    asked = f", accelerator: {accelerator}" if accelerator else ""
    search = SEARCH.replace("STRATEGY", strategy).replace("ACCELERATOR", asked)
    (workspace.root / "first-steps.md").write_text(TEXT + search, encoding="utf-8")


def told(app: AppTest) -> list[str]:
    return [one.value for one in app.error if "GPU" in one.value]


def is_off(app: AppTest, key: str) -> bool:
    return bool(next(one for one in app.button if str(one.key).startswith(key)).disabled)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("count", "strategy", "accelerator", "says"),
    [
        (
            1,
            "ddp",
            "",
            "space.workers: 4 workers cannot run: trainer.devices is 4, and each worker of DDP needs its own GPU",
        ),
        (8, "ddp", "", ""),
        (1, "AsyncPS", "", ""),  # whose workers share it
        (0, "ddp", "", ""),  # on CPUs
        (0, "ddp", "gpu", "trainer.accelerator: asks for a GPU, but this machine has none"),
    ],
)
def test_the_queues_errors_of_gpus_are_shown_and_block_it(
    count: int, strategy: str, accelerator: str, says: str, open_page: Open, workspace: Workspace, nvml: Put
) -> None:
    nvml(eight()[:count])
    write(workspace, strategy, accelerator)
    card = open_page()
    assert [one.replace("**", "").replace("`", "")[: len(says)] for one in told(card)] == ([says] if says else [])
    assert is_off(card, "run-workers") == bool(says)
    form = open_page("search", notebook="first-steps", cell="workers")
    assert [one.replace("**", "").replace("`", "")[: len(says)] for one in told(form)] == ([says] if says else [])
    assert is_off(form, "search-start") == bool(says)
