"""How a class of a description is found by what a config calls it."""

from dataclasses import replace

from scalebook.training.experiments.description import ClassInfo, Description, Field


def test_a_class_is_found_by_each_of_its_names_and_of_two_of_one_name_the_first(description: Description) -> None:
    first, second = ClassInfo("my.Net", "Net", config_value="net"), ClassInfo("other.Net", "Net")
    found = replace(description, models=[first, second])
    assert [found.find("models", name) for name in ("my.Net", "Net", "net")] == [first] * 3
    assert found.find("models", "other.Net") is second
    assert found.find("data", "Net") is None
    assert Field("net", "class", options=[first, second]).option("Net") is first


def test_a_description_that_was_asked_is_still_equal_and_travels_as_it_is(description: Description) -> None:
    asked = replace(description)
    assert asked.find("models", "PixelCNN") is not None
    assert asked == replace(description)
    assert Description.from_json(asked.to_json()) == description
