"""A claim of the document: what is claimed, the verdict, the figures that it follows from."""

from scalebook.training.claims import table
from scalebook.training.claims.evidence import Witness
from scalebook.training.claims.judging import judge
from scalebook.training.export.document import Block, CellHead, DataTable, Remark
from scalebook.training.export.experiments import config_of
from scalebook.training.notebook.cells import ClaimCell


def claim_blocks(witness: Witness, cell: ClaimCell) -> list[Block]:
    """Its head has the verdict as its state."""
    judgement = judge(witness, cell)
    rows = table.cells(judgement)
    return [
        CellHead("claim", cell.name, [judgement.verdict]),
        Remark(judgement.statement),
        DataTable(table.head(judgement), rows, table.numeric(judgement)),
        *(Remark(remark) for remark in [*table.guess(judgement), *table.remarks(judgement)]),
        config_of(cell.source),
    ]
