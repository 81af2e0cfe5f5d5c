"""How many examples of a property are tried: by each commit a third of those that `make thorough` tries.

@examples(150)
@given(...)
def test_nothing_is_lost(text: str) -> None: ...
"""

from typing import Any

from hypothesis import settings

THOROUGH = "thorough"
"""A profile: `pytest --hypothesis-profile thorough`."""

settings.register_profile(THOROUGH, settings.get_profile("default"))


def examples(most: int, **more: Any) -> settings:
    """For a property: so many under that profile. A busy machine takes its time."""
    count = most if settings.get_current_profile_name() == THOROUGH else most // 3
    return settings(max_examples=count, deadline=None, **more)
