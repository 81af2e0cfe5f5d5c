from scalebook.app.shared.services.experiment_summary import interval, summary
from tests.app.described import description
from tests.app.recorded import config


def test_an_experiment_in_one_line() -> None:
    assert summary(config(), description()).parts() == [
        "PixelCNN on Digits",
        "parameter server × 2, async",
        "batch 32 per worker, 64 global",
        "Adam, lr 0.001",
        "5 epochs",
    ]


def test_a_rule_is_named_with_what_matters() -> None:
    strategy = {"class_path": "AsyncPS", "init_args": {"rule": {"class_path": "Bounded", "init_args": {"bound": 3}}}}
    assert summary(config(2, strategy), description()).strategy == "parameter server × 2, bounded, bound 3"


def test_one_process_needs_fewer_words() -> None:
    wanted = config(1, "auto")
    wanted["trainer"]["max_time"] = "00:00:02:30"
    assert summary(wanted, description()).parts() == [
        "PixelCNN on Digits", "one process", "batch 32", "Adam, lr 0.001", "2 min 30 s",
    ]  # fmt: skip


def test_a_broken_config_says_what_can_be_read() -> None:
    broken = {"model": {"class_path": "no.Model"}, "trainer": "fast", "data": 3}
    found = summary(broken, description())
    assert (found.model_and_data, found.budget) == ("Model", "")


def test_intervals() -> None:
    assert interval(2.1034, 0.01234) == "2.103 ± 0.012"
    assert interval(2.1034, None) == "2.103"
    assert interval(None, None) == ""
