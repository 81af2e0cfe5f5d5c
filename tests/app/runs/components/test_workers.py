from scalebook.app.runs.components import workers


def test_the_mean_of_a_histogram() -> None:
    assert workers.mean([1, 2, 1]) == 1.0
    assert workers.mean([0, 0]) is None
