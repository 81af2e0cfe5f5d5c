"""What several journeys begin with: a notebook with one small experiment, and a field that is filled in."""

from playwright.sync_api import Page

TINY = """```yaml experiment=tiny
config:
  seed_everything: 1
  trainer: {max_epochs: 1}
  model: {class_path: MLPClassifier}
  data: {class_path: Digits, init_args: {batch_size: 32}}
  optimizer: {class_path: SGD, init_args: {lr: 0.1}}
```
"""


def fill(page: Page, label: str, value: str) -> None:
    box = page.get_by_role("textbox", name=label, exact=True)
    box.fill(value)
    box.press("Enter")
