"""The environment of a run whose processes were started by somebody, as Lightning wants to know it."""

import os

from typing_extensions import override

from scalebook.training.strategies.lightning import (
    ClusterEnvironment,
    LightningEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)


class StartedEnvironment(LightningEnvironment):
    """Ranks are those of the process that was started, and after the fork those of the worker.

    In place of Lightning's own for torchrun and for Slurm, which know one process for each worker and no other.
    """

    @property
    @override
    def creates_processes_externally(self) -> bool:
        return False

    @override
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)

    @override
    def node_rank(self) -> int:
        ranks = (os.environ.get(name) for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID"))
        return int(next((rank for rank in ranks if rank), 0))


def ours(environment: ClusterEnvironment | None) -> ClusterEnvironment | None:
    """Ours, in place of Lightning's for torchrun or Slurm; any other as it is."""
    theirs = isinstance(environment, TorchElasticEnvironment | SLURMEnvironment)
    return StartedEnvironment() if theirs else environment


def forks(environment: ClusterEnvironment) -> bool:
    """Whether workers are forked, where somebody else does not start them all: MPI, LSF, or whoever sets LOCAL_RANK."""
    return isinstance(environment, LightningEnvironment) and not environment.creates_processes_externally
