"""What a person sees on a machine with a GPU: `python -m tests.e2e.gpu_app [--only WORD]`; some three minutes.

A job is lent a GPU, pages show it and what the job takes of it, and the notebook First steps, which asks for CPUs, runs
in a headless Chromium. Each check is skipped by name where there is no GPU, or no Chromium. Ends with code 1 when one
has failed.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect, sync_playwright

from scalebook.training.base.files import records
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle, usage
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.gpus import VISIBLE, gpus_here
from scalebook.training.jobs.job_folder import ENDED, JobFolder, Result
from scalebook.training.notebook import store
from scalebook.training.tracking.run_reader import RunReader
from tests.e2e.conftest import ARGUMENTS, CHROMIUMS, ROOT, Served, end_supervisor, serve
from tests.gpu.running import Check, Machine, Outcome, closing, run_check

LIMIT_S: Final = 300.0
PAGE_MS: Final = 60_000
JOB_S: Final = 90.0
NOTEBOOK_S: Final = 180.0
NOTE: Final = "gpus.json"
LEARNT: Final = 0.95
"""Accuracy on the held-out digits."""
EXPERIMENT: Final[dict[str, Any]] = {
    "seed_everything": 1,
    "trainer": {"accelerator": "gpu", "max_epochs": 40},
    "model": {"class_path": "ConvClassifier"},
    "data": {"class_path": "Digits", "init_args": {"batch_size": 32}},
    "optimizer": {"class_path": "Adam", "init_args": {"lr": 0.002}},
}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.gpu_app", description=__doc__)
    parser.add_argument("--only", default="", help="checks whose names contain this")
    given = parser.parse_args()
    machine, until = found(), time.monotonic() + LIMIT_S
    print(f"{machine.name}\n", flush=True)
    outcomes = []
    for check in CHECKS:
        if given.only in check.name:
            if machine.gpus and (lacking := no_chromium()):
                outcomes.append(Outcome(check.name, "skipped", lacking))
            else:
                outcomes.append(run_check(check, machine, until - time.monotonic()))
            print(outcomes[-1].line(), flush=True)
    print(f"\n{closing(outcomes)}")
    sys.exit(any(one.status == "failed" for one in outcomes))


def found() -> Machine:
    """By what NVML says; why there are none, where there are none."""
    here = gpus_here()
    return Machine("cuda", len(here.gpus), here.gpus[0].name if here.gpus else f"no GPU: this machine {here.why}")


def no_chromium() -> str:
    """What is missing for the pages; nothing where it is there."""
    return "" if any(map(shutil.which, CHROMIUMS)) else f"no Chromium: none of {', '.join(CHROMIUMS)} is here"


@contextmanager
def served_app(folder: Path, notebook: str = "first-steps.md") -> Iterator[Served]:
    """The app on a workspace of its own with a notebook that ships."""
    workspace = Workspace(folder / "workspace").create()
    shutil.copy(ROOT / "notebooks" / notebook, workspace.root)
    served = serve(workspace)
    try:
        yield served
    finally:
        served.end()
        end_supervisor(workspace)


@contextmanager
def browser_page(served: Served) -> Iterator[Page]:
    """A tab of a Chromium of its own, known to the app."""
    with sync_playwright() as playwright:
        path = next(path for name in CHROMIUMS if (path := shutil.which(name)))
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1280, "height": 1400})
        context.set_default_timeout(PAGE_MS)
        expect.set_options(timeout=PAGE_MS)
        served.let_in(context)
        try:
            yield context.new_page()
        finally:
            browser.close()


def submitted(workspace: Workspace, config: dict[str, Any]) -> JobFolder:
    (job,) = job_requests.submit(workspace, Experiment.read(config, catalogue.describe(workspace)), seeds=[1])
    return job


def wait_for_end(jobs: Sequence[JobFolder], seconds: float) -> None:
    until = time.monotonic() + seconds
    while left := [job for job in jobs if job.state() not in ENDED]:
        assert time.monotonic() < until, f"{len(left)} of {len(jobs)} runs have not ended within {seconds:.0f} s"
        time.sleep(0.2)
    states = [job.state() for job in jobs]
    assert set(states) == {"finished"}, f"the runs are {', '.join(states)}"


# --- the checks ------------------------------------------------------------------------------------------------------


def job_is_lent_a_gpu(machine: Machine, folder: Path) -> str:
    """One GPU of this machine's, held while it runs; what it takes of it is noted, and shown on the run's page."""
    with served_app(folder) as served, browser_page(served) as page:
        job = submitted(served.workspace, EXPERIMENT)
        wait_for_end([job], JOB_S)
        started = job.started()
        assert started is not None
        uuids = [gpu.uuid for gpu in this_machine().gpus]
        assert len(started.gpus) == 1, f"it was lent {started.gpus}"
        assert started.gpus[0] in uuids, f"{started.gpus[0]} is none of {uuids}"
        told = used(usage.read_usage(job), started.gpus[0])
        accuracy = best_accuracy(served.workspace, job)
        page.goto(f"{served.addresses.app}/runs?run={job.id}")
        expect(page.locator(".sb-chip").first).to_have_text("finished")
        for chart in ("GPU busy, %", "GPU memory, MB"):
            expect(page.get_by_text(chart, exact=True).first).to_be_visible()
    return f"{told}; accuracy {accuracy:.3f}"


def used(samples: Sequence[usage.Usage], uuid: str) -> str:
    """What samples say of a GPU; AssertionError where they have none of it, or nothing was taken of it."""
    readings = [reading for sample in samples for reading in sample.gpus if reading.uuid == uuid]
    assert readings, f"of {len(samples)} samples none is of {uuid}"
    memory = max(reading.memory_mb or 0.0 for reading in readings)
    assert memory > 0, "none of its memory was taken"
    busy = max(reading.busy or 0.0 for reading in readings)
    return f"{len(readings)} samples, {memory:.0f} MB and {busy:.0%} busy at most"


def best_accuracy(workspace: Workspace, job: JobFolder) -> float:
    """Of a run, by MLflow."""
    metrics = RunReader(workspace.tracking_uri()).run(job.id).metrics
    accuracy = float(metrics["val/accuracy"])
    assert accuracy > LEARNT, f"the accuracy is {accuracy:.3f}"
    return accuracy


def two_jobs_have_a_gpu_each(machine: Machine, folder: Path) -> str:
    """Two runs at the same time on one GPU each: the leases are disjoint, and each process sees its own alone."""
    workspace = Workspace(folder / "workspace").create()
    description = catalogue.describe(workspace)
    jobs = [
        job_requests.submit(workspace, Experiment.read(EXPERIMENT, description), seeds=[seed], start=False)[0]
        for seed in (1, 2)
    ]
    supervisor_handle.ensure(workspace, ["--runner", "tests.e2e.gpu_app:note_gpus", "--preload", ""])
    try:
        wait_for_end(jobs, JOB_S)
    finally:
        end_supervisor(workspace)
    lent = [started.gpus for job in jobs if (started := job.started()) is not None]
    seen = [json.loads((job.path / NOTE).read_text(encoding="utf-8")) for job in jobs]
    uuids = {gpu.uuid for gpu in this_machine().gpus}
    assert [len(one) for one in lent] == [1, 1], f"lent were {lent}"
    assert len({uuid for one in lent for uuid in one} & uuids) == 2, f"{lent} are not two of {sorted(uuids)}"
    assert [one["visible"] for one in seen] == lent, f"lent were {lent}, visible {seen}"
    if not all(one["cuda"] for one in seen):
        return "a lease each; CUDA, which is not here, was not asked"
    assert [one["cuda"] for one in seen] == lent, f"lent were {lent}, CUDA has {seen}"
    return "a lease each, and CUDA shows the same"


def note_gpus(folder: Path) -> int:
    """In place of a run: write down which GPUs this process sees, and stay until the other run has, too."""
    import torch  # whose CUDA is not begun before the process has its GPUs

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(count)]
    noted = {"visible": [word for word in os.environ[VISIBLE].split(",") if word], "cuda": cuda}
    records.put(folder / NOTE, json.dumps(noted).encode())
    until = time.monotonic() + JOB_S
    while len(list(folder.parent.glob(f"*/{NOTE}"))) < 2:
        assert time.monotonic() < until, "the other run has not begun beside this one"
        time.sleep(0.1)
    JobFolder(folder).write(Result("finished", time.time()))
    return 0


def device_page_shows_gpus(machine: Machine, folder: Path) -> str:
    """Runs, Devices: a row for each GPU, by name, with its memory; a screenshot, where SCALEBOOK_SHOTS says."""
    with served_app(folder) as served, browser_page(served) as page:
        page.goto(f"{served.addresses.app}/runs")
        page.get_by_text("Devices", exact=True).first.click()
        rows = page.locator("table.sb tr", has_text=f"· {machine.name}")
        expect(rows).to_have_count(machine.gpus)
        text = rows.first.inner_text()
        gib = this_machine().gpus[0].memory_mb / 1024
        assert f"of {gib:.1f}" in text, f"{gib:.1f} GB are not in {text!r}"
        if shots := os.environ.get("SCALEBOOK_SHOTS"):
            page.screenshot(path=Path(shots) / "gpu-devices.png")
    return f"{machine.gpus} rows; {' '.join(text.split())}"


def first_steps_in_a_browser(machine: Machine, folder: Path) -> str:
    """Run all, as a person would: every run finishes, each card says so, and the classifiers have learnt."""
    with served_app(folder) as served, browser_page(served) as page:
        cells = store.read(served.workspace.root / "first-steps.md").notebook.experiments()
        page.goto(f"{served.addresses.app}/?notebook=first-steps")
        page.get_by_role("button", name="Run all").click()
        expected = sum(len(cell.seeds()) for cell in cells)
        until = time.monotonic() + JOB_S
        while len(jobs := job_requests.all_jobs(served.workspace)) < expected:
            assert time.monotonic() < until, f"{len(jobs)} of {expected} runs were submitted"
            time.sleep(0.2)
        wait_for_end(jobs, NOTEBOOK_S)
        for cell in cells:
            chip = page.locator(f".st-key-cell-experiment-{cell.name} .sb-chip").first
            expect(chip).to_have_text("finished")
        first = [job for job in jobs if (job.request().cell or "").startswith("classifier")]
        lowest = min(best_accuracy(served.workspace, job) for job in first)
    return f"{len(jobs)} runs of {len(cells)} experiments; accuracy {lowest:.3f} at least"


CHECKS: Final = [
    Check("the device page shows the GPUs", device_page_shows_gpus, 60.0),
    Check("a job is lent a GPU, and its usage is shown", job_is_lent_a_gpu, 120.0),
    Check("two GPUs: two jobs have a GPU each", two_jobs_have_a_gpu_each, 120.0, gpus=2),
    Check("First steps, in a browser", first_steps_in_a_browser, 240.0),
]

if __name__ == "__main__":
    main()
