"""What an export says of a question."""

from scalebook.training.asking.answer_export import exported_answers
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.notebook import main
from scalebook.training.experiments.description import Description
from scalebook.training.notebook import store
from scalebook.training.tracking.run_reader import NoRuns

TEXT = """# Workers

```yaml experiment=one
config:
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits}
```
```yaml answer=workers
question: more-workers
experiment: one
metric: val/loss
```
"""


def test_a_question_that_nobody_has_begun_says_so_on_top(workspace: Workspace, description: Description) -> None:
    path = workspace.root / "page.md"
    path.write_text(TEXT, encoding="utf-8")
    answer = exported_answers(workspace, NoRuns(""), store.read(path), description)["workers"]
    assert (answer.state, answer.sentence, answer.table) == ("not begun", "Not started.", [])
    assert answer.question.startswith("Will more workers speed up my training")
    assert main(["export", str(path)]) == 0
    page = path.with_suffix(".html").read_text(encoding="utf-8")
    assert page.index('<a href="#answer-workers">Not started.</a>') < page.index('id="answer-workers"')
