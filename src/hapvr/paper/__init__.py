"""The paper's studies: its result tables with your own figures below them, its ablations, its figures.

`hapvr.paper.figures` draws (it needs matplotlib and a decoder); the rest runs where training runs, and
`python -m hapvr.paper.ablations` is `hapvr ablate` for machines without the command line.
"""

from hapvr.paper.ablation_tables import AblationTable
from hapvr.paper.ablations import ablate, run_study
from hapvr.paper.studies import STUDIES
from hapvr.paper.tables import PaperTable, Result, find_paper_table, read_paper_tables, read_result

__all__ = [
    "STUDIES",
    "AblationTable",
    "PaperTable",
    "Result",
    "ablate",
    "find_paper_table",
    "read_paper_tables",
    "read_result",
    "run_study",
]
