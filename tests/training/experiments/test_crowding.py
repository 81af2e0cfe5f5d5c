from scalebook.training.experiments.description import Description
from scalebook.training.experiments.workload import crowd_words, workload
from tests.app.recorded import config


def test_a_thousand_workers_on_two_cores_are_not_passed_over(description: Description) -> None:
    assert crowd_words(workload(config(workers=1000), description), 2) == (
        "1,000 workers on 2 cores: about 500 would take turns on each, and every worker takes memory of its own."
    )
    threads = workload({**config(workers=10), "threads": 4}, description)
    assert crowd_words(threads, 1).startswith("10 workers with 4 threads each on 1 core: about 40 would")


def test_a_crowd_that_is_often_wanted_is_let_pass(description: Description) -> None:
    assert crowd_words(workload(config(workers=16), description), 2) == ""
    assert crowd_words(workload(config(workers=17), description), 2) != ""
