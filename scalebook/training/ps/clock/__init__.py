"""What is next on a run's clock: real processes that sleep, or many workers played in one process at virtual times."""

from scalebook.training.ps.clock.steps import Clock, RealClock, Steps, T, Until, Wait

__all__ = ["Clock", "RealClock", "Steps", "T", "Until", "Wait"]
