"""A claim of the document: what is claimed, the verdict, the figures that it follows from."""

from scalebook.training.claims import table
from scalebook.training.claims.judging import Judgement
from scalebook.training.export.document import Block, CellHead, DataTable, Remark
from scalebook.training.export.experiments import config_of


def claim_blocks(judgement: Judgement) -> list[Block]:
    """Its head has the verdict as its state."""
    rows = table.cells(judgement)
    return [
        CellHead("claim", judgement.cell.name, table.verdicts(judgement)),
        Remark(judgement.statement),
        DataTable(table.head(judgement), rows, table.numeric(judgement)),
        *(Remark(remark) for remark in [*table.guesses(judgement), *table.remarks(judgement)]),
        config_of(judgement.cell.source),
    ]
