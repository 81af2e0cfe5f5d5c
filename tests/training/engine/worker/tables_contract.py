"""What a worker's end does with sparse tables, whatever carries their rows. Worker 0 is always beside the shards."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.store.gradient_transfer import ROW_NUMBER
from scalebook.training.engine.worker.worker_end import JoinedEnd, WorkerEnd
from tests.training.engine.towers import WIDTH, Towers, adagrad, batch, gradient, sgd, sparse_adam
from tests.training.engine.worker.end_contract import EndOf
from tests.training.engine.worker.peers import DEADLINE_S, together

STEPS = 8
Make = Callable[[Sequence[Parameter]], Optimizer]


def in_one_process(make: Make) -> list[Tensor]:
    """torch's optimizer, the duplicates of each gradient summed."""
    model = Towers(make is not sparse_adam)
    optimizer = make(list(model.parameters()))
    for number in range(STEPS):
        gradient(model, number)
        for table in (model.words.weight, model.bags.weight):
            assert table.grad is not None
            table.grad = table.grad.coalesce()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def ends(joined: JoinedEnd, model: Towers) -> list[Tensor]:
    joined.finish()
    joined.wait_for_others()
    joined.pull()
    joined.detach()
    assert "row_source" not in vars(model.words)
    return [p.detach().clone() for p in model.parameters()]


def trains(numbers: Sequence[int]) -> "Body":
    """On these batches."""

    def body(end: WorkerEnd, joined: JoinedEnd, model: Towers) -> list[Tensor]:
        joined.start()
        joined.begin()
        for number in numbers:
            gradient(model, number)
            joined.clients[0].push()
        return ends(joined, model)

    return body


def moved(end: WorkerEnd) -> tuple[int, int]:
    """Bytes that this worker has pushed and pulled so far."""
    mine = [one for one in end.figures.pushes() if one.worker == end.worker]
    return sum(one.pushed_bytes for one in mine), sum(one.pulled_bytes for one in mine)


Body = Callable[[WorkerEnd, JoinedEnd, Towers], Any]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own optimizers make such tensors
class TablesContract(ABC):
    """`launched` is all that an implementation must bring."""

    @abstractmethod
    def launched(self, launch: Launch, make: Make, model: Callable[[], Towers]) -> AbstractContextManager[EndOf]:
        """While the block lasts: `EndOf`. `make`, `model`: what serves has the same."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Settings that make a run of this kind."""

    def trained(self, bodies: Sequence[Body], make: Make = sgd, **settings: Any) -> list[Any]:
        """What each worker's body has made of a worker that has joined."""
        launch = Launch(len(bodies), Settings(**{**self.settings, **settings}))
        new = partial(Towers, make is not sparse_adam)
        models = [new() for _ in bodies]

        def live(end: WorkerEnd, model: Towers, body: Body) -> Any:
            joined = end.join([make(list(model.parameters()))], model=model)
            joined.name_parameters(model.named_parameters())
            return body(end, joined, model)

        with self.launched(launch, make, new) as end_of:
            every = [end_of(number, DEADLINE_S) for number in range(len(bodies))]
            made = together(*[partial(live, *one) for one in zip(every, models, bodies, strict=True)])
        launch.close()
        return made

    @pytest.mark.parametrize("make", [sgd, adagrad, sparse_adam])
    def test_one_that_trains_alone_is_one_process_bit_for_bit(self, make: Make) -> None:
        """And all hold the last version at the end, whole."""
        idle, trained = self.trained([trains([]), trains(range(STEPS))], make)
        assert_same(trained, in_one_process(make))
        assert_same(idle, trained)

    def test_averages_of_equal_gradients_are_one_process(self) -> None:
        first, second = self.trained([trains(range(STEPS))] * 2, rule=Sync())
        assert_same(first, in_one_process(sgd))
        assert_same(second, first)

    @pytest.mark.parametrize("rule", [Async(), Bounded(1), Softsync(2)])
    def test_every_worker_ends_with_the_same_whole_tables(self, rule: Rule) -> None:
        first, second, third = self.trained([trains(range(at, at + STEPS)) for at in (0, 50, 90)], adagrad, rule=rule)
        assert_same(second, first)
        assert_same(third, first)

    def test_the_bytes_that_are_counted_are_of_rows_and_of_all_that_is_dense(self) -> None:
        def once(end: WorkerEnd, joined: JoinedEnd, model: Towers) -> tuple[int, int]:
            joined.start()
            joined.begin()
            before = moved(end)
            gradient(model, 0)
            joined.clients[0].push()
            after = moved(end)
            ends(joined, model)
            return after[0] - before[0], after[1] - before[1]

        _, (pushed, pulled) = self.trained([trains([]), once])
        words, bags, _ = batch(0)
        row, dense = ROW_NUMBER + 4 * WIDTH, 4 * (WIDTH + 1)
        read = len(set(words.flatten().tolist())) + len(set(bags.flatten().tolist()))
        padding = int(bool((words == 0).any())) + int(bool((bags == 0).any()))
        assert (pushed, pulled) == (dense + row * (read - padding), dense + row * read)

    def test_what_all_have_loaded_before_the_start_is_the_first_version(self) -> None:
        def loads(end: WorkerEnd, joined: JoinedEnd, model: Towers) -> list[Tensor]:
            with torch.no_grad():
                model.words.weight.fill_(2.0)
            return trains([])(end, joined, model)  # type: ignore[no-any-return]

        for weights in self.trained([loads, loads]):
            assert (weights[0] == 2.0).all()
