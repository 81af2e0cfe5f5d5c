"""A worker of the engine on another machine: what comes out, who listens, and what is written here of a link's end."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.handshake import serving
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Async
from tests.cluster.drilling import Kind, drill, scene
from tests.cluster.far_run import FarRun
from tests.cluster.namespaces import Listening, Machines, Namespaces
from tests.training.engine.accounts import Account
from tests.training.engine.net.far import DEADLINE_S, Far
from tests.training.engine.net.test_exact import SHAPES, adam, assert_same, fresh, in_one_process, momentum, train

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Sparse invariant checks")]


@pytest.mark.parametrize(("make", "tls"), [(momentum, False), (adam, True)])
def test_one_worker_on_another_machine_is_one_process(
    two: Machines, make: Callable[[Sequence[Parameter]], Optimizer], tls: bool
) -> None:
    launch, parameters = Launch(1, Settings(shards=2)), fresh()
    listen = lambda: two.inside(0, lambda: listening(two.addresses[0]))  # noqa: E731
    far = Far(launch, make, serving() if tls else None, SHAPES, listen)

    def there() -> None:
        joined = far.worker(0, DEADLINE_S).join([make(parameters)])
        train(joined, parameters)
        joined.detach()

    try:
        two.inside(1, there)
    finally:
        far.close()
        launch.close()
    assert far.endings == []
    assert_same([parameter.detach() for parameter in parameters], in_one_process(make))


def test_nobody_listens_beyond_what_was_configured(apart: Namespaces, tmp_path: Path) -> None:
    run = FarRun(apart, tmp_path, Settings(rule=Async()), tls=True)
    try:
        run.goes_on(1, 10)
        assert apart.listening(0) == {Listening("tcp", "10.77.0.1", port) for port in run.ports.all()}
        assert apart.listening(1) == set()
        account, (there,) = run.end()
    finally:
        run.close()
    assert account == Account(0, 0, 0)
    assert there.final is not None
    assert apart.listening(0) == set()


@pytest.mark.sampled
@pytest.mark.parametrize(("number", "kind"), list(enumerate(Kind)), ids=list(Kind))
def test_what_goes_wrong_is_told_and_nothing_is_lost_or_done_twice(number: int, kind: Kind, missing: str) -> None:
    if missing and kind.needs_links:
        pytest.skip(missing)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = drill(scene(kind, 3 + number), loopback=bool(missing))
    finally:
        torch.set_num_threads(threads)
    assert outcome.is_good, outcome
