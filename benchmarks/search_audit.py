"""Whether a search's three records agree: the study, MLflow, and the job folders."""

from collections import Counter
from collections.abc import Sequence

from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.search.driver.search_record import INTERRUPTED, SearchRecord
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking import names


def audit(folder: SearchFolder, records: Sequence[TrialRecord], *, statuses: bool = True) -> list[str]:
    """What is wrong, [] if nothing is: a trial lost, one run twice, or MLflow and the study disagree.

    `statuses`: whether the runs report their end to MLflow; proxies do not.
    """
    mistakes: list[str] = []
    if [record.number for record in records] != list(range(len(records))):
        mistakes.append(f"trials are missing from the study: {[record.number for record in records]}")
    children = {run.info.run_id: run for run in SearchRecord(folder).children()}
    jobs = {job.id: job for job in all_jobs(folder.workspace)}
    ended: Counter[tuple[int, int]] = Counter()
    for run_id, run in children.items():
        number, state = int(run.data.tags[names.TAG_TRIAL]), run.data.tags.get(names.TAG_TRIAL_STATE)
        if run_id not in jobs:
            mistakes.append(f"run {run_id} of trial {number} has no job")
            continue
        if statuses and run.info.status in ("RUNNING", "SCHEDULED"):
            mistakes.append(f"run {run_id} of trial {number} is {run.info.status} in MLflow")
        record = next((record for record in records if record.number == number), None)
        if record is None:
            mistakes.append(f"trial {number} of run {run_id} is not in the study")
        elif state not in (record.state, INTERRUPTED):
            mistakes.append(f"trial {number} is {record.state} in the study and {state} in MLflow")
        result = jobs[run_id].result()
        if result is not None and result.status == "finished":
            ended[number, jobs[run_id].request().seed] += 1
    twice = [(number, seed) for (number, seed), times in ended.items() if times > 1]
    mistakes += [f"trial {number} seed {seed} ran to its end more than once" for number, seed in twice]
    study_runs = {run_id for record in records for run_id in record.runs.values()}
    mistakes += [f"run {run_id} of the study is not in MLflow" for run_id in study_runs - set(children)]
    return mistakes


def is_recorded(workspace: Workspace) -> bool:
    """Whether MLflow knows the end of every run; a separate process soon reports runs that died."""
    return not any(job.unrecorded.exists() for job in all_jobs(workspace))
