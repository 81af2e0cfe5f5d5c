import pytest

from scalebook.training.tracking.directions import Direction, as_tag, direction, modes, recorded_directions
from scalebook.training.tracking.names import TAG_DIRECTIONS

HIGHER = "val_BinaryAUROC val_acc val_r2 iou val/dice bleu map ndcg psnr kappa pearson top1 top_5 explained_variance f1"
LOWER = "val_loss val_mae top1_error seconds val/bits_per_dim"


@pytest.mark.parametrize(("written", "lower"), [(HIGHER, False), (LOWER, True)])
def test_words_of_a_name_tell_the_direction(written: str, lower: bool) -> None:
    assert [name for name in written.split() if direction(name) != Direction(lower, "name")] == []


def test_what_no_word_tells_is_guessed_lower_and_said_to_be() -> None:
    assert direction("anomaly_score") == Direction(True, "guess")
    assert direction("anomaly_score").words == "lower is better, guessed"
    assert direction("val_acc").words == "higher is better"


def test_a_person_comes_before_the_record_and_the_record_before_the_name() -> None:
    config = {
        "trainer": {"callbacks": [{"class_path": "EarlyStopping", "init_args": {"monitor": "odd", "mode": "max"}}]}
    }
    tags = {TAG_DIRECTIONS: as_tag(modes(config["trainer"]["callbacks"]))}
    assert direction("odd", recorded=recorded_directions([{}, tags])) == Direction(False, "recorded")
    assert direction("odd", "min", recorded_directions([tags])) == Direction(True, "said")
    assert recorded_directions([{TAG_DIRECTIONS: "torn {"}]) == {}


def test_who_says_it_first_decides_and_callbacks_that_disagree_say_nothing() -> None:
    first, second = ({TAG_DIRECTIONS: as_tag({"odd": "max"})}, {TAG_DIRECTIONS: as_tag({"odd": "min", "even": "min"})})
    assert recorded_directions([first, second]) == {"odd": "max", "even": "min"}
    callbacks = [{"init_args": {"monitor": name, "mode": mode}} for name, mode in (("odd", "max"), ("odd", "min"))]
    assert modes(callbacks) == {}
    assert modes(callbacks[:1]) == {"odd": "max"}
