"""The form on a machine with no, one and eight GPUs."""

import pytest
from streamlit.testing.v1 import AppTest

from scalebook.training.jobs import gpus
from tests.app.pages.compose_form import captions, config, off, pick
from tests.app.pages.conftest import Open, has_number, number
from tests.training.jobs.fake_nvml import FakeNvml, Put, eight, forget

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("looked_at")]


def errors(app: AppTest) -> list[str]:
    return [one.value for one in app.error]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, ""),
        (1, "This machine has 1 GPU (NVIDIA H100, 80 GB)."),
        (8, "This machine has 8 GPUs (NVIDIA H100, 80 GB each)."),
    ],
)
def test_the_form_names_the_gpus_and_refuses_more_workers_of_ddp(
    count: int, said: str, open_page: Open, nvml: Put
) -> None:
    nvml(eight()[:count])
    app = open_page("compose", notebook="first-steps")
    told = [one for one in captions(app) if "GPU" in one]
    needs = " DDP needs one GPU for each worker, but the workers of a parameter server can share GPUs."
    assert told == ([said + needs] if said else [])
    pick(app, "Strategy", "DDP")
    number(app, "Workers").set_value(9).run()
    found = [one for one in errors(app) if "needs its own GPU" in one]
    assert len(found) == (1 if count else 0)
    assert off(app) == ((True, True) if count else (False, False))
    if count:
        assert f"this machine has {count}" in found[0]
        number(app, "Workers").set_value(count).run()
        assert off(app) == (False, False)
    pick(app, "Strategy", "Parameter server")
    number(app, "Workers").set_value(9).run()
    assert off(app) == (False, False)
    version = app.session_state["draft"].version
    app.session_state[f"compose.{version}.fold.trainer"] = True
    app.run()
    assert has_number(app, "GPU share") == bool(count)
    if count:
        number(app, "GPU share").set_value(0.5).run()
        assert config(app)["gpu_share"] == 0.5
        assert any("the run uses 9 GPUs, and only runs on one GPU can share a GPU" in one for one in errors(app))


def test_what_is_missing_is_said_where_gpus_might_be(
    open_page: Open, nvml: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(error=FakeNvml.MISMATCH)
    told = [one for one in captions(open_page("compose", notebook="first-steps")) if "GPU" in one]
    assert told == [
        (
            "No GPU is used, because this machine has a driver that fails (NVML: Driver/library version mismatch). "
            "See `nvidia-smi`; after a driver update, restart the machine."
        )
    ]
    nvml(eight())
    monkeypatch.setattr(gpus, "cpu_build", lambda: "2.13.0+cpu")
    forget()
    (missing,) = [one for one in captions(open_page("compose", notebook="first-steps")) if "GPU" in one]
    assert "torch 2.13.0+cpu is a CPU build" in missing
    assert "pip install --force-reinstall torch" in missing
