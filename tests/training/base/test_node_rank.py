"""Who has started how many processes of a run, by the environment."""

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.node_rank import NodeRank, first_host, forget_launchers, node_rank

BY_HAND = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
    "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip
SLURM = {
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "gpu[07,09-12]",
    "SLURM_NODEID": "1", "SLURM_LOCALID": "0", "SLURM_PROCID": "1", "SLURM_JOB_ID": "4321098",
}  # fmt: skip


def test_a_person_torchrun_and_slurm_say_where_a_process_stands() -> None:
    assert node_rank(BY_HAND, 2, 3) == NodeRank(2, 1, 1, 0, "10.0.0.1", 29500)
    found = node_rank(TORCHRUN, 2, 3)
    assert found == NodeRank(2, 1, 3, 2, "10.0.0.1", 29500, hosted=True, by="torchrun")
    assert found is not None
    assert (found.index, found.count) == (5, 6)
    assert node_rank(SLURM, 2, 3) == NodeRank(2, 1, 1, 0, "gpu07", 16098, by="Slurm")
    assert node_rank({**SLURM, **BY_HAND}, 2, 3) == NodeRank(2, 1, 1, 0, "10.0.0.1", 29500, by="Slurm")
    each = {**SLURM, "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "2"}
    assert node_rank(each, 2, 3) == NodeRank(2, 1, 3, 2, "gpu07", 16098, by="Slurm")


def test_a_job_of_the_queue_forgets_who_started_the_queue() -> None:
    for environment, devices in ((BY_HAND, 2), (TORCHRUN, 3), (SLURM, 2)):
        inherited = {**environment, "HOME": "/home/me", "SLURM_TMPDIR": "/tmp"}
        forget_launchers(inherited)
        assert node_rank(inherited, 1, devices) is None
        assert {"HOME", "SLURM_TMPDIR"} <= inherited.keys()


def test_a_process_of_its_own_is_nowhere() -> None:
    assert node_rank({}, 1, 4) is None
    assert node_rank(BY_HAND, 1, 4) is None  # says of what many clouds set that there is no second one
    one = {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert node_rank({**SLURM, **one, "SLURM_NODEID": "0"}, 1, 4) is None
    script = {name: value for name, value in SLURM.items() if "STEP" not in name}
    assert node_rank({**script, "SLURM_NTASKS": "8", "SLURM_NNODES": "2"}, 1, 4) is None
    assert (
        node_rank({**TORCHRUN, "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"}, 1, 3) is not None
    )  # several, on one machine


@pytest.mark.parametrize(
    ("environment", "nodes", "devices", "said"),
    [
        ({}, 2, 1, "trainer.num_nodes: is 2, but the environment names no other node. Start the run on each"),
        ({"NODE_RANK": "0"}, 2, 1, "trainer.num_nodes: is 2, but the environment names no other node. Start the"),
        ({**BY_HAND, "NODE_RANK": "2"}, 2, 1, "trainer.num_nodes: is 2, but NODE_RANK is 2. Use 0 to 1."),
        ({**BY_HAND, "MASTER_PORT": "x"}, 2, 1, "trainer.num_nodes: cannot be compared with the environment"),
        (TORCHRUN, 3, 3, "trainer.num_nodes: is 3, but torchrun started this run on 2. Use 2."),
        (TORCHRUN, 1, 3, "trainer.num_nodes: is 1, but torchrun started this run on 2. Use 2."),
        (TORCHRUN, 2, 2, "trainer.devices: is 2, but torchrun started 3 processes on each node. Start only 1"),
        (SLURM, 4, 2, "trainer.num_nodes: is 4, but Slurm started this run on 2. Use 2."),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "3"}, 2, 2, "trainer.num_nodes: is 2, but Slurm started 3 tasks"),
    ],
)
def test_other_numbers_are_refused_by_key_and_remedy(
    environment: dict[str, str], nodes: int, devices: int, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        node_rank(environment, nodes, devices)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu07", "gpu07"), ("gpu[07-09,12],login", "gpu07"), ("a,b[1-2]", "a"), ("r[1-2]n[3,5-6]", "r1n3")],
)
def test_slurm_s_first_machine(nodes: str, first: str) -> None:
    assert first_host(nodes) == first
