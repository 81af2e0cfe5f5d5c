"""The clock of a model that is split over several workers, while one process trains it: what each update takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.sim import Draws
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.profile import Profile, mean
from scalebook.training.pricing.splits import Price, Split, SplitPricing, UpdateTimes


@dataclass
class WorkerSeconds:
    """Of one worker so far: computing and updating, and waiting by reason."""

    computing: float = 0.0
    bubble: float = 0.0
    uneven: float = 0.0
    link: float = 0.0

    @property
    def whole(self) -> float:
        return self.computing + self.bubble + self.uneven + self.link


class SplitClock:
    """The clock of a split, from the layers of one gradient of one machine that would have all of the model.

    The workers of a pipeline have consecutive numbers, the first stage's first; otherwise those of a tensor group have.
    In each update every worker draws by how much it is slower than `gradient_s` says on average; all others wait.
    """

    def __init__(self, settings: ClockSettings, split: Split, seed: int = 0) -> None:
        self.settings, self.split = settings, split
        self.time_s = 0.0
        self.workers = [WorkerSeconds() for _ in range(split.workers)]
        self._numbers = [
            worker for stage in range(split.stages) for worker in range(stage, split.workers, split.stages)
        ]
        """Workers in the order of prices, which has those of a stage together; numbers have those of a pipeline."""
        self._seed, self._draws = seed, Draws(seed)
        self._pricing: SplitPricing | None = None
        self._last: tuple[tuple[float, ...], UpdateTimes] | None = None

    def resume(self, seconds: float) -> None:
        """Before the first update: set the time of the run that is resumed; draws then differ from its first ones."""
        self.time_s, self._draws = seconds, Draws(f"{self._seed} from {seconds!r}")

    @property
    def stages(self) -> Sequence[Sequence[Layer]]:
        """The layers of each stage."""
        return () if self._pricing is None else self._pricing.stages

    def stage_of(self, worker: int) -> int:
        """The stage that a worker has."""
        return worker % self.split.stages

    def set_layers(self, layers: Sequence[Layer], batch_size: int, state: float = 0.0) -> Price:
        """The price of the split of these layers. `state`: bytes of the optimizer's state of all parameters.
        TooFewLayersError if the stages are more than the layers make."""
        weights = sum(layer.parameter_bytes for layer in layers)
        profile = Profile(
            gradient_s=mean(self.settings.gradient_s),
            batch_size=batch_size,
            push_bytes=weights,
            pull_bytes=weights,
            stragglers=dict(self.settings.stragglers),
            network=Network(self.settings.link),
            weights=weights,
            state=state,
            layers=layers,
        )
        self._pricing = SplitPricing(layers, self.split, profile, profile.network)
        self._last = None
        return self._pricing.price()

    def update(self) -> UpdateTimes:
        """Let the clock go on by one update; its workers in the order of prices, those of a stage together."""
        assert self._pricing is not None, "set_layers first"
        drawn = list(map(self._factor, range(self.split.workers)))
        factors = tuple(drawn[worker] for worker in self._numbers)
        if self._last is None or self._last[0] != factors:
            self._last = factors, self._pricing.update(factors)
        took = self._last[1]
        self.time_s += took.seconds
        for number, computing, bubble, uneven, link in zip(
            self._numbers, took.computing, took.bubble, took.uneven, took.link, strict=True
        ):
            worker = self.workers[number]
            worker.computing += computing
            worker.bubble += bubble
            worker.uneven += uneven
            worker.link += link
        return took

    def _factor(self, worker: int) -> float:
        drawn = self._draws.value(self.settings.gradient_s, "gradient", worker)
        return self.settings.stragglers.get(worker, 1.0) * drawn / mean(self.settings.gradient_s)
