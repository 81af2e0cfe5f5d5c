"""The answers of a notebook, as its exports have them."""

from scalebook.training.asking import answer_bars
from scalebook.training.asking.answer import AnswerReader
from scalebook.training.asking.answer_rows import table
from scalebook.training.base import ConfigError, Workspace
from scalebook.training.experiments import Description
from scalebook.training.notebook import Stored
from scalebook.training.notebook.export import ExportedAnswer
from scalebook.training.tracking import RunReader, drawing


def exported_answers(
    workspace: Workspace, reader: RunReader, stored: Stored, description: Description
) -> dict[str, ExportedAnswer]:
    """By the names of the cells. A question that cannot be read says so in its place."""
    answers = AnswerReader(workspace, reader, stored.path.name, stored.notebook, description)
    exported: dict[str, ExportedAnswer] = {}
    for cell in stored.notebook.answers():
        try:
            findings = answers.answer(cell)
        except ConfigError as error:
            exported[cell.name] = ExportedAnswer("", str(error), "cannot be read")
            continue
        rows, drawn = table(findings) if findings.rows else [], answer_bars.picture(findings, cell.goal)
        chart = "" if drawn is None else drawing.as_svg(drawn, answer_bars.spoken(findings))
        exported[cell.name] = ExportedAnswer(
            findings.question, findings.headline, findings.state, rows, findings.sentences, chart
        )
    return exported
