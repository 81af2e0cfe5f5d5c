from scalebook.training.planner.tuning.rates import HEIGHT, plot


def test_a_curve_with_its_marks_and_what_explodes_cut_off() -> None:
    rates = [10.0 ** (i / 10 - 4) for i in range(41)]
    losses = [2.0 if i < 10 else 1.0 if i < 30 else 50.0 for i in range(41)]
    lines = plot(rates, losses, {rates[10]: "v", rates[29]: "|"})
    assert len(lines) == HEIGHT + 2
    assert all(len(line) <= 80 for line in lines)
    assert "^" in lines[0]
    assert lines[HEIGHT - 1].startswith("       1 |")
    axis = lines[HEIGHT]
    assert axis.index("v") < axis.index("|")
    assert lines[-1].split() == ["1.0e-04", "1.0e+00"]


def test_a_flat_curve() -> None:
    lines = plot([0.1, 1.0], [2.0, 2.0], {})
    assert lines[HEIGHT - 1].count("*") == 2
