from scalebook.app.serving.addresses import by_same_name
from scalebook.app.shared import links


def test_the_comparison_names_each_experiment_once() -> None:
    assert links.compare("http://127.0.0.1:5000", ["a", "b"], ["7", "7"]) == (
        "http://127.0.0.1:5000/#/compare-runs?runs=%5B%22a%22%2C%22b%22%5D&experiments=%5B%227%22%5D&workflowType=machine_learning"
    )


def test_pages_of_runs_and_experiments() -> None:
    assert links.run("http://m", "7", "abc") == "http://m/#/experiments/7/runs/abc?workflowType=machine_learning"
    assert links.experiment("http://m", "7").endswith("/7/runs?workflowType=machine_learning")
    assert links.experiments("http://m") == "http://m/#/experiments?workflowType=machine_learning"
    assert links.experiments("http://m/?token=x") == "http://m/?token=x#/experiments?workflowType=machine_learning"


def test_our_server_goes_by_the_name_that_the_browser_is_known_by() -> None:
    ours = "http://127.0.0.1:5000"
    assert by_same_name(ours, "http://localhost:8501/runs") == "http://localhost:5000"
    assert by_same_name(ours, "http://127.0.0.1:8501/") == ours
    assert by_same_name(ours, "") == ours
    assert by_same_name("https://mlflow.example.org", "http://localhost:8501/") == "https://mlflow.example.org"


def test_the_trials_of_a_search() -> None:
    address = links.trials("http://m", "7", "abc")
    assert address == (
        "http://m/#/experiments/7/runs?workflowType=machine_learning"
        "&searchFilter=tags.mlflow.parentRunId%20%3D%20%27abc%27"
    )
