"""A workspace in which questions are played."""

import pytest

from scalebook.training.asking import asking
from scalebook.training.asking.recipe import Machine
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from tests.training.asking.played import Player


@pytest.fixture
def player(workspace: Workspace, description: Description, monkeypatch: pytest.MonkeyPatch) -> Player:
    """On a machine with two cores."""
    monkeypatch.setattr(asking, "machine", lambda: Machine(2))
    return Player(workspace, description, monkeypatch)
