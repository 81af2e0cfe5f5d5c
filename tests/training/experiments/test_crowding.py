from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from tests.app.recorded import config


def test_a_thousand_workers_on_two_cores_are_not_passed_over(description: Description) -> None:
    assert Experiment.read(config(workers=1000), description).crowd_words(2) == (
        "1,000 workers are too many for 2 cores, because about 500 threads would take turns on each core, "
        "and every worker needs its own memory."
    )
    threads = Experiment.read({**config(workers=10), "threads": 4}, description)
    assert threads.crowd_words(1).startswith(
        "10 workers with 4 threads each are too many for 1 core, because about 40 threads would"
    )


def test_a_crowd_that_is_often_wanted_is_let_pass(description: Description) -> None:
    assert Experiment.read(config(workers=16), description).crowd_words(2) == ""
    assert Experiment.read(config(workers=17), description).crowd_words(2) != ""
