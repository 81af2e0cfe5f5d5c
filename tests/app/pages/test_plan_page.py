import time
from dataclasses import replace

from scalebook.app.plan import answer_charts
from scalebook.app.shared import notebooks
from scalebook.app.shared.words import figure
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.jobs.devices import this_machine
from scalebook.training.planner.answer_words import expectation
from scalebook.training.planner.question import usual_workers
from scalebook.training.planner.question_folder import QuestionFolder
from scalebook.training.pricing.links import OWN
from tests.app.pages.conftest import Open, html, number, words
from tests.app.plan.planned import MEASURED, answer, example, keep, reached, request


def test_an_answer_comes_in_words_charts_and_a_table(open_page: Open, workspace: Workspace) -> None:
    found = keep(workspace)
    app = open_page("plan", notebook="first-steps", cell="pixelcnn-async-2", system="Form")
    assert [one.value for one in app.title] == ["Plan pixelcnn-async-2"]
    assert "Workers help up to about 5 (4 to 5): 8 workers train" in words(app)
    assert "Without this limit, 8 workers would train 1.7 times as fast (1.5 to 1.9)." in words(app)
    said = "What would help at 8 workers: sums of 4 gradients (local: downpour) (2.8 x, 2.5 to 3.1)"
    assert said in words(app)
    for curve in found.curves:
        assert all(line in words(app) for line in expectation(curve.reliability))
    (fold,) = (one for one in app.expander if one.label == "How accurate?")
    assert fold.markdown[0].value.startswith("- async over a network: 9 of 10 predictions were 0.")
    assert len(app.get("plotly_chart")) == 4
    assert html(app).count("<tr>") == 1 + 14
    assert 'tabindex="0" role="region" aria-label="All figures"' in html(app)
    assert [one.label for one in app.button if one.label == "Plan"] == []
    app.text_input(key="samples").set_value("64").run()
    assert "No plan yet" in html(app), "another question"


def test_what_is_extrapolated_is_marked_in_words_and_colour(open_page: Open, workspace: Workspace) -> None:
    keep(workspace)
    app = open_page("plan", notebook="first-steps", cell="pixelcnn-async-2", system="Form")
    assert "rates are" not in html(app), "a profile that a person wrote"
    here = replace(answer(), curves=[replace(curve, measured=2) for curve in answer().curves])
    QuestionFolder(workspace, request()).keep_answer(example(), here)
    app = open_page("plan", notebook="first-steps", cell="pixelcnn-async-2", system="Form")
    assert "Measured: the times of up to 2 workers. Extrapolated: all rates for more workers." in words(app)
    for basis, count in (("measured", 4), ("extrapolated", 10)):
        swatch = f'style="background:{answer_charts.basis_colour(basis)}"></span>{basis}<'  # type: ignore[arg-type]
        assert html(app).count(swatch) == count


def test_a_price_adds_what_a_million_samples_cost(open_page: Open, workspace: Workspace) -> None:
    found = keep(workspace)
    app = open_page("plan", notebook="first-steps", cell="pixelcnn-async-2", system="Form")
    assert "per 1M samples" not in html(app)
    assert "memory each" in html(app)
    app.text_input(key="price").set_value("2.5").run()
    point = found.curves[0].points[-1]
    cost = point.workers * 2.5 * 1e6 / point.samples_per_s / 3600
    assert "per 1M samples" in html(app)
    assert f">{figure(cost, 3)}<" in html(app)
    app.text_input(key="price").set_value("cheap").run()
    assert [one.value for one in app.error] == ["price: cheap is not a price. Enter a number, such as 2.5."]
    assert "per 1M samples" not in html(app)


def test_what_cannot_be_asked_is_said_by_key_and_remedy(open_page: Open) -> None:
    app = open_page("plan", bandwidth="fast")
    assert app.error[0].value.startswith("profile.network.bandwidth: is 'fast', not a number of bytes a second")
    app = open_page("plan", rules="asink")
    assert "--strategies: there is no rule 'asink'" in app.error[0].value
    app = open_page("plan", notebook="first-steps", cell="gone")
    assert "first-steps has no experiment gone" in app.warning[0].value


def test_an_experiment_is_named_as_on_the_search_page_or_the_address_is_refused(open_page: Open) -> None:
    """Never does a wrong address show the numbers of an invented system as if they were measured."""
    app = open_page("plan", notebook="first-steps", experiment="pixelcnn-async-2")
    assert [one.value for one in app.title] == ["Plan pixelcnn-async-2"]
    assert "Not measured yet" in html(app)
    app = open_page("plan", notebook="first-steps", cel="pixelcnn-async-2")
    assert app.error[0].value == "The address has `cel`, which is not a parameter of this page. Did you mean `cell`?"
    assert not app.text_input


def test_numbers_of_nobody_are_called_an_example(open_page: Open) -> None:
    app = open_page("plan")
    assert any(one.value.startswith("These numbers are an **example**") for one in app.caption)
    app.text_input(key="gradient").set_value("90 ms").run()
    assert not any("**example**" in one.value for one in app.caption)


def test_rules_and_shards_are_the_config_s_where_none_is_chosen(open_page: Open) -> None:
    """Of a system written by hand, which has none, the usual ones; also after the config's were on the page."""
    app = open_page("plan", notebook="first-steps", cell="pixelcnn-async-2")
    boxes = [app.multiselect(key=key) for key in ("rules", "shards")]
    assert [box.value for box in boxes] == [[], []]
    assert [box.placeholder for box in boxes] == ["the config's, and others", "from the config"]
    assert app.select_slider(key="most").value == str(usual_workers(len(this_machine().cores), [OWN])[-1])
    app.segmented_control(key="system").set_value("Form").run()
    assert not app.error
    assert open_page("plan").select_slider(key="most").value == "64"


def test_plan_plays_in_a_process_that_can_be_stopped(open_page: Open) -> None:
    app = open_page("plan", most="4")
    next(one for one in app.button if one.label == "Plan").click().run()
    stop = next(one for one in app.button if one.label == "Stop")
    stop.click().run()
    deadline = time.monotonic() + 20
    while any(one.label == "Stop" for one in app.button):
        assert time.monotonic() < deadline
        app.run()
    assert not app.exception
    assert [one.label for one in app.button if one.label in ("Plan", "Stop")] == ["Plan"]


def test_an_experiment_leads_here(open_page: Open) -> None:
    app = open_page("", notebook="first-steps")
    app.button(key="plan-pixelcnn-async-2").click().run()
    assert not app.exception
    assert [one.value for one in app.title] == ["Plan pixelcnn-async-2"]
    assert [one.label for one in app.button if one.label == "Plan"] == ["Plan"]
    assert "Plan first measures pixelcnn-async-2" in html(app)


def test_the_time_to_a_target_stands_below(open_page: Open, workspace: Workspace) -> None:
    cell = notebooks.load(notebooks.choices(workspace)[0])[0]
    assert cell is not None
    hashed = config_hash(Experiment.read(cell.notebook.experiments()[0].config, catalogue.describe(workspace)))
    keep(workspace, measured=hashed)
    target = replace(
        request(), profile=None, config_hash=hashed, rules=[], shards=[], metric="val/bits_per_dim", target=0.9
    )
    QuestionFolder(workspace, target).keep_answer(MEASURED, answer())
    app = open_page("plan", notebook="first-steps", cell="pixelcnn-async-2", target="0.9", most="64")
    assert [one.label for one in app.button if one.label == "Train to the target"] == ["Train to the target"]
    QuestionFolder(workspace, target).keep_target(MEASURED, reached())
    app.run()
    assert "2 workers reach the target soonest" in words(app)
    assert (
        "Compared with 1 worker, they make 1.9 times as many updates per second (1.7 to 2.1), and need 1.2 times as "
        "many updates."
    ) in words(app)
    assert len(app.get("plotly_chart")) == 4 + 3
    assert "missed" in html(app)
    assert [one.label for one in app.button if one.label in ("Plan", "Train to the target")] == []
    number(app, "Target").set_value("0,9").run()
    assert "target: '0,9' is not a number" in app.error[0].value
