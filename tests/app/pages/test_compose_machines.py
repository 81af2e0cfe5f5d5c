import pytest

from scalebook.training.base.files import yaml
from tests.app.pages.compose_form import as_yaml, config, pick
from tests.app.pages.conftest import Open, has_number, number

pytestmark = pytest.mark.long


@pytest.mark.usefixtures("looked_at")
def test_machines_may_join_and_leave_where_the_strategy_lets_them(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    assert not has_number(app, "Nodes")  # for one process
    pick(app, "Strategy", "Parameter server")
    assert not has_number(app, "Fewest workers")
    number(app, "Nodes").set_value(2).run()
    number(app, "Fewest workers").set_value(3).run()
    trainer = config(app)["trainer"]
    assert (trainer["devices"], trainer["num_nodes"]) == (2, 2)
    assert trainer["strategy"]["init_args"]["workers"] == {"min": 3, "max": 4}
    number(app, "Workers").set_value(4).run()
    number(app, "Nodes").set_value(3).run()
    assert config(app)["trainer"]["strategy"]["init_args"]["workers"] == {"min": 3, "max": 12}
    pick(app, "Rule", "sync")
    assert any("an update of sync averages one gradient per worker" in one.value for one in app.error)
    number(app, "Fewest workers").set_value("").run()
    assert "workers" not in config(app)["trainer"]["strategy"]["init_args"]
    assert not any("averages depends" in one.value for one in app.error)
    pick(app, "Strategy", "DDP")
    assert not has_number(app, "Fewest workers")


def test_a_range_by_hand_is_there_in_the_form(open_page: Open) -> None:
    app = open_page("compose", notebook="first-steps")
    pick(app, "Strategy", "Parameter server")
    server = {"class_path": "AsyncPS", "init_args": {"rule": "async", "workers": {"min": 2, "max": 6}}}
    wanted = config(app)
    wanted["trainer"] |= {"devices": 3, "num_nodes": 2, "strategy": server}
    as_yaml(app, yaml.dump(wanted))
    assert number(app, "Fewest workers").value == 2
    assert config(app) == wanted
