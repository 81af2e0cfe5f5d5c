from scalebook.app import resources


def test_a_figure_is_drawn_anew_only_when_it_is_told_something_else() -> None:
    told: list[list[float]] = []

    def draw(values: list[float]) -> list[float]:
        told.append(values)
        return [2 * value for value in values]

    first = resources.cached_figure(draw, [1.0, 2.0])
    assert first == [2.0, 4.0]
    assert resources.cached_figure(draw, [1.0, 2.0]) is first
    assert resources.cached_figure(draw, [1.0, 2.5]) == [2.0, 5.0]
    assert told == [[1.0, 2.0], [1.0, 2.5]]
