"""`scalebook ask`, whose runs are played: what it prints before and after."""

import pytest

from scalebook.training.asking.ask_folder import AskProgress
from scalebook.training.base.errors import ConfigError
from scalebook.training.cli import ask
from scalebook.training.notebook import store
from tests.training.asking.conftest import player as player
from tests.training.asking.played import Player, falling

pytestmark = pytest.mark.long


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert ask.main([*words, "--trust"]) == 0
    return capsys.readouterr().out


def test_it_says_what_it_will_do_and_which_rates_it_used(player: Player, capsys: pytest.CaptureFixture[str]) -> None:
    path = player.write("a-or-b")
    words = ("a-or-b", str(path), "--cell", "other", "--against", "base", "--budget", "1 hour")
    printed = said(capsys, *words)
    assert "scalebook: base; other. First, Scalebook searches for the best learning rate for each side." in printed
    assert (
        "Each side is compared at the best learning rate found, which can differ from the one in the config (0.1)."
    ) in printed
    assert "\nLearning rates: base 0.1, the rate in the config, which was the best; other" in printed
    assert said(capsys, *words).split("\n\n")[1:] == printed.split("\n\n")[1:], (
        "the same command shows the answer again"
    )


def test_a_spent_budget_names_the_command_that_goes_on(player: Player, capsys: pytest.CaptureFixture[str]) -> None:
    path = player.write("a-or-b", budget=900.0)
    with player.asking(path).folder.alone():
        player.asking(path).folder.write(AskProgress(0.0, 100.0, ""))
    player.curve = lambda experiment, seed: falling(experiment, seed, spread=0.01)
    for _ in range(3):
        step = player.asking(path).next_step()
        assert step is not None
        with player.asking(path).folder.alone():
            step()
    player.asking(path).folder.write(AskProgress(0.0, 910.0, ""))
    words = ("a-or-b", str(path), "--cell", "base", "--against", "other")
    again = "The budget of 15 min is spent. To continue, run the same command with --budget 23m."
    assert again in said(capsys, *words)
    printed = said(capsys, *words, "--budget", "23m")
    assert "--budget 23m" not in printed
    assert "base" in printed.rpartition("side ")[2], "the table of an answer"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ("--budget", "20s"),
            "budget: 20 s is too short, because a run takes a few seconds, and an answer needs at least",
        ),
        (("--metric", "val/nothing"), "metric: val/nothing is not logged by base-a-or-b-pilot"),
    ],
)
def test_what_cannot_be_answered_says_what_to_write(player: Player, options: tuple[str, str], why: str) -> None:
    path = player.write("more-workers")
    with pytest.raises(ConfigError, match=why):
        ask.main(["a-or-b", str(path), "--cell", "base", "--against", "other", *options, "--trust"])
    if options[0] == "--budget":
        assert len(store.read(path).notebook.answers()) == 1, "nothing is written"
