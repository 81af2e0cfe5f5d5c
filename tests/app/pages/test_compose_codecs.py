from typing import Any

import pytest

from tests.app.pages.compose_form import captions, choice, config, pick, run_until
from tests.app.pages.conftest import Open, number


def test_codecs_are_offered_with_their_bytes_for_this_model(open_page: Open, looked_at: list[Any]) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    version = str(number(app, "Workers").key).split(".")[1]
    assert looked_at == []  # nobody has opened the list
    app.session_state[f"compose.{version}.fold.trainer.strategy.init_args"] = True
    app.run()
    run_until(app, lambda: any(one.startswith("For this model") for one in captions(app)))
    assert len(looked_at) == 1
    offered = choice(app, "Push codec").options
    assert offered == choice(app, "Pull codec").options
    assert {"fp32 · 20 kB", "bf16 · 10 kB, 1/1.99", "topk 0.01 · 432 B, 1/46.3"} < {*offered}
    assert all(" kB" in one or " B, 1/" in one for one in offered), offered
    assert "For this model, a push sends 20 kB, uncompressed, and a pull sends 20 kB, uncompressed." in captions(app)
    pick(app, "Push codec", "topk")
    number(app, "Share").set_value(0.5).run()
    assert config(app)["trainer"]["strategy"]["init_args"]["push_codec"]["init_args"] == {"share": 0.5}
    assert choice(app, "Push codec").value.config_value == "topk"
    assert any(one.startswith("For this model, a push sends 20 kB (1 times of 20 kB)") for one in captions(app))
    assert len(looked_at) == 1


@pytest.mark.usefixtures("looked_at")
def test_a_codec_of_ddp_says_what_is_handed_in_and_taken_out(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "DDP")
    number(app, "Workers").set_value(4).run()
    pick(app, "Codec", "sign")
    said = "a worker sends 688 B (1/29.1 of 20 kB) and receives 2.06 kB (1/9.69 of 20 kB)."  # three others' frames
    run_until(app, lambda: any(said in one for one in captions(app)))
    pick(app, "Codec", "bf16")
    assert config(app)["trainer"]["strategy"] == {
        "class_path": "scalebook.training.lightning.DDP", "init_args": {"codec": "bf16"},
    }  # fmt: skip
    pick(app, "Codec", "fp32")
    assert config(app)["trainer"]["strategy"] == "ddp"
