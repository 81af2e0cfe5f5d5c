"""A search of which no trial finishes, from its command to the pages: real runs, all of which diverge."""

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.search.search_folder import all_searches
from tests.app.pages.conftest import Open, html
from tests.training.benches import clear
from tests.training.describing import forked

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
DEADLINE_S = 250.0  # of a busy machine; 15 s on a free one
NOTEBOOK = """# Rates

```yaml experiment=base
config:
  model: {class_path: MLPClassifier, init_args: {hidden: 8}}
  data: {class_path: Digits, init_args: {batch_size: 32, limit: 128}}
  optimizer: {class_path: SGD, init_args: {lr: 0.1}}
  trainer: {max_epochs: 50, accelerator: cpu}
```

```yaml search=rates
experiment: base
objective: val/loss
trials: 2
sampler: grid
space: {learning_rate: {grid: [1.0e+30, 1.0e+31]}}
```
"""


@pytest.mark.thorough
def test_a_search_all_of_whose_trials_fail_is_failed_on_the_command_line_and_on_its_card(
    workspace: Workspace, open_page: Open
) -> None:
    path = workspace.root / "rates.md"
    path.write_text(NOTEBOOK, encoding="utf-8")
    try:
        done = forked("search", "run", str(path), timeout_s=DEADLINE_S)
        assert done.returncode == 1, f"{done.stdout}{done.stderr}"
        assert "rates failed: none of 2 trials finished; the last cause: " in done.stdout
        (search,) = all_searches(workspace)
        assert search.state() == "failed"
        card = open_page("", notebook="rates")
        said = [one.value for one in card.error]
        assert len(said) == 1
        assert said[0].startswith("**The search failed.** None of 2 trials finished; the last cause: ")
        for shown in (html(card), html(open_page("search")), html(open_page("search", search=search.id))):
            assert '<span class="sb-chip sb-failed">failed</span>' in shown
            assert 'class="sb-chip sb-finished' not in shown
    finally:
        clear(workspace)
