"""A person's own package under odd names: kept with each run, part of what makes results stale; trials apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.notebook import store
from scalebook.training.notebook.claims.claim_table import text
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import judge_all
from scalebook.training.notebook.comparison import compare
from scalebook.training.notebook.read_results import SeedResult, results
from scalebook.training.notebook.store import Stored
from scalebook.training.search import search_requests
from scalebook.training.search.search_folder import SearchFolder, all_searches
from scalebook.training.tracking import names, notes
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.shared_files import Prepared
from tests.training.benches import clear
from tests.training.describing import fork_descriptions, forked
from tests.training.odd_lab import FILES, NOTEBOOK

pytestmark = [pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]
DEADLINE_S = 250.0
USED = ["mein_paket/__init__.py", "mein_paket/netze/__init__.py", "mein_paket/netze/linie.py",
        "mein_paket/werkzeug.py", "punkte.py"]  # fmt: skip


class Lab:
    def __init__(self, root: Path) -> None:
        self.root, self.workspace = root, Workspace(root)
        self.reader = RunReader(self.workspace.tracking_uri())

    @property
    def stored(self) -> Stored:
        return store.read(self.root / NOTEBOOK)

    @property
    def description(self) -> Description:
        return describe(self.workspace)

    def write(self, name: str, more: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name] + more, encoding="utf-8")

    def result(self) -> SeedResult:
        nb = self.stored.notebook
        (found,) = results(self.reader, NOTEBOOK, nb.experiments()[0], self.description, nb)
        return found

    def run(self) -> RunRecord:
        found = self.result().run
        assert found is not None
        return found

    def search(self) -> SearchFolder:
        return all_searches(self.workspace)[0]

    def stale_search(self) -> str:
        nb = self.stored.notebook
        (cell,) = nb.searches()
        asked = self.search().request()
        return search_requests.what_changed(
            asked.identity, asked.modules, cell.body, nb.base(cell, self.description), self.description
        )

    def artifacts(self, run_id: str) -> list[str]:
        folder = self.workspace.artifacts / run_id / "artifacts" / names.MODULES
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def verdict(self, claim: str) -> str:
        nb = self.stored.notebook
        witness = EvidenceReader(self.workspace, self.reader, NOTEBOOK, nb, self.description)
        return text(judge_all(witness)[claim])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Lab]:
    """Its experiment and its search have run once."""
    root = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("SCALEBOOK_WORKSPACE", str(root))
        fork_descriptions(patch)
        made = Lab(root)
        for name in FILES:
            made.write(name)
        prepared.open(made.workspace)
        trust(made.workspace)
        try:
            for command in ("notebook", "search"):
                done = forked(command, "run", str(root / NOTEBOOK), timeout_s=DEADLINE_S)
                assert done.returncode == 0, done.stderr + done.stdout
            yield made
        finally:
            clear(made.workspace)


@pytest.fixture(autouse=True)
def as_they_were(lab: Lab) -> Iterator[None]:
    yield
    for name in FILES:
        lab.write(name)


def test_the_files_that_the_config_uses_are_artifacts_of_the_run(lab: Lab) -> None:
    run = lab.run()
    assert lab.artifacts(run.id) == USED
    folder = lab.workspace.artifacts / run.id / "artifacts"
    assert (folder / "modules/mein_paket/netze/linie.py").read_text(encoding="utf-8") == FILES[USED[2]]
    assert (folder / names.CONFIG_ARTIFACT).is_file()
    assert "Prüfung/mittlerer Fehler" in run.metrics
    trials = lab.reader.runs(where=f"tags.`{names.TAG_TRIAL}` != ''")
    assert [lab.artifacts(trial.id) for trial in trials] == [USED, USED]


def test_an_edited_module_makes_stale_what_used_it_and_says_which(lab: Lab) -> None:
    cell = lab.stored.notebook.experiments()[0]
    (comparison,) = lab.stored.notebook.comparisons()
    assert (lab.result().changed, lab.result().due) == ("", False)
    lab.write("mein_paket/anderes.py", "y = 2\n")
    assert (lab.result().changed, lab.stale_search()) == ("", ""), "no module of this config"
    assert "earlier" not in lab.verdict("gut")
    assert "stale" not in lab.verdict("besser")
    lab.write("mein_paket/werkzeug.py", "\n# twice as good\n")
    assert (lab.result().changed, lab.result().due) == ("mein_paket/werkzeug.py", True)
    lab.write("punkte.py", "# more\n")
    assert lab.result().changed == "punkte.py and mein_paket/werkzeug.py"
    lab.write("punkte.py")
    compared = compare(lab.reader, NOTEBOOK, lab.stored.notebook, comparison, lab.description)
    assert compared.rows[0].note == "the results are from an earlier mein_paket/werkzeug.py"
    assert compared.rows[0].best is None
    assert "from an earlier mein_paket/werkzeug.py" in lab.verdict("gut")
    assert lab.stale_search() == "mein_paket/werkzeug.py has changed"
    assert "the search raten is stale: mein_paket/werkzeug.py has changed" in lab.verdict("besser")
    (older,) = results(
        _Without(lab.reader, names.TAG_MODULES), NOTEBOOK, cell, lab.description, lab.stored.notebook
    )  # a run of an earlier version
    assert older.changed == ""


class _Without(RunReader):
    """A store whose runs lack a tag."""

    def __init__(self, reader: RunReader, tag: str) -> None:
        super().__init__(reader.tracking_uri)
        self.tag = tag

    def runs(self, **asked: object) -> list[RunRecord]:
        found = super().runs(**asked)  # type: ignore[arg-type]
        for run in found:
            run.tags.pop(self.tag, None)
        return found


def test_trials_lie_apart_and_are_found_from_the_notebooks_own_runs(lab: Lab) -> None:
    client = lab.reader.client
    home = client.get_experiment_by_name(Path(NOTEBOOK).stem)
    apart = client.get_experiment_by_name(f"trials of raten: {Path(NOTEBOOK).stem}")
    assert home is not None
    assert apart is not None
    assert lab.search().request().trials_experiment == apart.experiment_id
    own = client.search_runs([home.experiment_id])
    assert sorted(run.info.run_name for run in own) == ["raten", "seed 1: linie"]
    trials = client.search_runs([apart.experiment_id], f"tags.mlflow.parentRunId = '{lab.search().id}'")
    assert sorted(run.info.run_name for run in trials) == [f"trial {trial}, seed 1: raten" for trial in (0, 1)]
    parent = client.get_run(lab.search().id).data.tags[names.TAG_NOTE]
    assert f"#/experiments/{apart.experiment_id}/runs?workflowType=machine_learning" in parent
    assert home.tags[names.TAG_NOTE] == notes.of_experiment(home.experiment_id, NOTEBOOK)
    assert apart.tags[names.TAG_NOTE] == notes.of_experiment(apart.experiment_id, NOTEBOOK, "raten")
    assert notes.split_note(lab.run().tags[names.TAG_NOTE], lab.run().id) == ("", notes.of_run(lab.run().id, NOTEBOOK))


def test_what_is_stale_runs_again_and_a_search_of_other_code_begins_anew(lab: Lab) -> None:
    first, study = lab.run().id, lab.search().id
    done = forked("notebook", "run", "--stale", str(lab.root / NOTEBOOK), timeout_s=DEADLINE_S)
    assert "Nothing is stale" in done.stdout
    assert search_requests.start(*_asked(lab), name="raten", **_where(lab)).id == study, "it goes on"  # type: ignore[arg-type]
    lab.write("mein_paket/werkzeug.py", "\n# other code\n")
    done = forked("notebook", "run", "--stale", str(lab.root / NOTEBOOK), timeout_s=DEADLINE_S)
    assert (done.returncode, "1 of 1 runs finished" in done.stdout) == (0, True), done.stderr
    assert lab.run().id != first
    assert lab.result().changed == ""
    made = search_requests.start(*_asked(lab), name="raten", **_where(lab))  # type: ignore[arg-type]
    assert made.id != study
    search_requests.stop(made)
    lab.write("mein_paket/werkzeug.py")
    assert lab.run().id == first, "what was undone has its results again"


def _asked(lab: Lab) -> tuple[object, ...]:
    nb = lab.stored.notebook
    (cell,) = nb.searches()
    return lab.workspace, cell.body, nb.base(cell, lab.description)


def _where(lab: Lab) -> dict[str, object]:
    return {"notebook": NOTEBOOK, "cell": "raten", "description": lab.description}
