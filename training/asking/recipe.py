"""What a question is: the sides that it compares, and what decides between them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from scalebook.training.asking.answer_rows import AnswerRow, DecidedBy, Findings
from scalebook.training.base import ConfigError
from scalebook.training.experiments import VIRTUAL, Experiment, strategy_words
from scalebook.training.experiments.search import point
from scalebook.training.notebook import AnswerCell

Tuned = Literal["learning_rate", "batch_size"]
GRADIENT_S = 0.1
"""Seconds of a gradient on the clock of virtual workers. Their samples do not depend on it."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison. `name` is the end of its cells' names, `words` what people call it."""

    name: str
    words: str
    experiment: Experiment
    tuned: tuple[Tuned, ...] = ("learning_rate",)
    """What is searched for it before it is compared. Without a place for a learning rate there is nothing to tune."""

    @property
    def is_simulated(self) -> bool:
        return self.experiment.strategy.is_simulated


@dataclass(frozen=True)
class Machine:
    """How many workers can compute at a time: one on each core (or several, by `threads`), or one on each GPU."""

    cores: int
    gpus: int = 0

    def slots(self, experiment: Experiment) -> int:
        if self.gpus and experiment.accelerator != "cpu":
            return self.gpus
        return max(1, self.cores // experiment.threads)


class Recipe(ABC):
    """A question that can be asked of any experiment. To add one, add a file with a subclass to `recipes/`."""

    name: ClassVar[str]
    """As a cell and the command line name it."""
    question: ClassVar[str]
    """The question in words."""
    place: ClassVar[int] = 100
    """Its place among the questions that are offered."""
    figure: ClassVar[DecidedBy]
    """What decides: the seconds or samples to the target, or the best value of the metric."""
    bound: ClassVar[float] = 1.0
    """The claim of each side: at most so many times what the first side takes."""
    needs_against: ClassVar[bool] = False
    """Whether it is about two experiments."""
    planned: ClassVar[bool] = False
    """Whether the planner says what more workers than the machine has room for would do."""

    @abstractmethod
    def sides(self, base: Experiment, against: Experiment | None, machine: Machine) -> Sequence[Side]:
        """The sides, the baseline first, then the most telling ones: a short budget leaves out the last ones.
        ConfigError for an experiment that the question does not fit."""

    @abstractmethod
    def headline(self, answer: Findings, compared: Sequence[AnswerRow], baseline: AnswerRow) -> str:
        """The answer in one sentence, whose first words already give it. `compared`: the sides with an interval, one at
        least."""

    def side_words(self, cell: AnswerCell, name: str, experiment: Experiment) -> str:
        """What people call the side whose cell is `name`."""
        return experiment_words(experiment)


def experiment_words(experiment: Experiment) -> str:
    """What people call a side by its strategy, as cards and tables do: `DDP × 2`."""
    strategy = experiment.strategy
    return strategy_words(strategy.name, strategy.words, strategy.workers, simulated=strategy.is_simulated)


def one_process(base: Experiment, name: str = "one") -> Side:
    """The experiment in one process."""
    return _side(name, point.put_strategy(base, "single"))


def ddp(base: Experiment, workers: int, **arguments: Any) -> Side:
    """The experiment with DDP, each worker with the experiment's own batch size; `arguments` of Scalebook's DDP."""
    alone = point.put_strategy(base, "single")
    value: Any = {"class_path": "DDP", "init_args": arguments} if arguments else "ddp"
    return _side(f"ddp-{workers}", point.put_workers(point.put_strategy(alone, value), workers))


def server(base: Experiment, workers: int, name: str, simulated: bool = False, **arguments: Any) -> Side:
    """The experiment with a parameter server, its workers real or simulated; `arguments` of AsyncPS."""
    init_args: dict[str, Any] = {**arguments, "workers": workers}
    if simulated:
        init_args |= {"host": VIRTUAL, "clock": {"gradient_s": GRADIENT_S}}
    alone = point.put_strategy(base, "single")
    trainer = {**alone.written.get("trainer", {}), "strategy": {"class_path": "AsyncPS", "init_args": init_args}}
    if simulated or trainer.get("accelerator") == "cpu":
        trainer["devices"] = 1
        if not simulated:
            trainer.pop("devices")
    ends = "-virtual" if simulated else ""
    return _side(f"{name}-{workers}{ends}", base.with_config({**alone.written, "trainer": trainer}))


def _side(name: str, experiment: Experiment) -> Side:
    return Side(name, experiment_words(experiment), experiment)


def require_rate(side: Side) -> Side:
    """The side, with nothing to tune where its config has no place for a learning rate."""
    if "learning_rate" not in side.tuned:
        return side
    try:
        point.rate_place(side.experiment)
    except ConfigError:
        return Side(side.name, side.words, side.experiment, tuple(one for one in side.tuned if one != "learning_rate"))
    return side if side.experiment.rate.requested else Side(side.name, side.words, side.experiment, ())
