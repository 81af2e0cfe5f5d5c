from training.spec.identity import config_hash


def test_order_and_seed_do_not_matter_and_values_do() -> None:
    one = {"model": {"a": 1, "b": [1, 2.0]}, "seed_everything": 1}
    same = {"seed_everything": 7, "model": {"b": [1, 2], "a": 1}}
    assert config_hash(one) == config_hash(same)
    assert len(config_hash(one)) == 12
    assert config_hash(one) != config_hash({"model": {"a": 2, "b": [1, 2.0]}})
    assert config_hash(one) != config_hash({"model": {"a": "1", "b": [1, 2.0]}})


def test_the_hash_of_a_config_is_the_same_for_ever() -> None:
    """Stored with every run: another hash would make all results stale."""
    assert config_hash({"model": "PixelCNN", "trainer": {"max_epochs": 3}}) == "e32c879df143"
