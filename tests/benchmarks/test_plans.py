"""What is compared: which parts are measured, and which runs follow."""

from benchmarks.plans import CORES, SHARING, comparisons


def test_each_model_of_users_is_measured_once_and_trained_under_four_strategies() -> None:
    found = [*comparisons("users", [], "cpu")]
    assert [one.system for one in found] == ["GRU", "U-Net", "tiny"]
    for one in found:
        assert [pair.rule for pair in one.pairs] == ["async", "ddp", "d_psgd:ring", "sync"]
        assert {pair.workers for pair in one.pairs} == {CORES}
        assert one.config == one.pairs[0].config
        assert all(pair.config["model"] == one.config["model"] for pair in one.pairs)
    (only,) = comparisons("users", ["tiny"], "cpu")
    assert only == found[-1]


def test_a_width_is_measured_once_and_trained_by_each_number_of_workers() -> None:
    (shared,) = comparisons("gpu", ["32"], "cpu")
    assert [pair.workers for pair in shared.pairs] == [*SHARING]
    assert shared.config == shared.pairs[2].config, "of four workers"
    (ddp,) = comparisons("ddp", ["8"], "cpu")
    assert [pair.config for pair in ddp.pairs] == [ddp.config]
    assert ddp.config["trainer"]["strategy"] == "ddp"
