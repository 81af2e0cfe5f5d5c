"""The cells of a question in a notebook: its own cell at the beginning, more seeds for its sides at the end."""

from dataclasses import replace

from scalebook.training.notebook import AnswerCell, Notebook, edit


def begun(nb: Notebook, wanted: AnswerCell) -> tuple[Notebook, AnswerCell]:
    """The notebook with a cell for the question `wanted`, and that cell: the one that asks the same, which goes on with
    the larger budget; else a new one behind its experiment."""
    same = asked_before(nb, wanted)
    if same is not None:
        cell = replace(same, budget_s=max(wanted.budget_s, same.budget_s))
        return edit.put_answer(nb, cell), cell
    cell = replace(wanted, name=edit.unique_name(nb, f"{wanted.experiment}-{wanted.question}"))
    place = next(index for index, one in enumerate(nb.cells) if getattr(one, "name", None) == cell.experiment)
    return edit.put_answer(nb, cell, place + 1), cell


def asked_before(nb: Notebook, wanted: AnswerCell) -> AnswerCell | None:
    """The cell that asks the same; an empty metric or target of `wanted` fits all."""

    def same(cell: AnswerCell) -> bool:
        about = (cell.question, cell.experiment, cell.against) == (wanted.question, wanted.experiment, wanted.against)
        return about and wanted.metric in ("", cell.metric) and wanted.target in (None, cell.target)

    return next(filter(same, nb.answers()), None)


def with_seeds(nb: Notebook, cell: AnswerCell, seeds: int) -> Notebook:
    """The notebook with so many seeds for every side of an answer that has fewer."""
    comparison = next((one for one in nb.comparisons() if one.name == cell.comparison), None)
    for side in nb.experiments():
        if comparison is not None and side.name in comparison.runs and side.repeats < seeds:
            nb = edit.put_experiment(nb, side.name, side.config, seeds)
    return nb
