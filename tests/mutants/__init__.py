"""Mistakes made on purpose, each of which some test must find (`make mutants`)."""

from tests.mutants.made import MUTANTS
from tests.mutants.of_bytes import MUTANTS_OF_BYTES
from tests.mutants.of_copies import MUTANTS_OF_COPIES
from tests.mutants.of_figures import MUTANTS_OF_FIGURES
from tests.mutants.of_machines import MUTANTS_OF_MACHINES
from tests.mutants.of_peers import MUTANTS_OF_PEERS
from tests.mutants.of_splits import MUTANTS_OF_SPLITS
from tests.mutants.of_strategies import MUTANTS_OF_STRATEGIES

ALL = (
    *MUTANTS,
    *MUTANTS_OF_BYTES,
    *MUTANTS_OF_COPIES,
    *MUTANTS_OF_FIGURES,
    *MUTANTS_OF_MACHINES,
    *MUTANTS_OF_PEERS,
    *MUTANTS_OF_SPLITS,
    *MUTANTS_OF_STRATEGIES,
)
