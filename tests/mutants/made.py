"""The mistakes of `tests.mutants`: a place, what stands there instead, what that breaks, who must notice."""

from typing import Literal, NamedTuple

PS = "tests/training/engine"
SEARCH = "tests/training/search"
JOBS = "tests/training/jobs"
NOTEBOOK = "tests/training/notebook"
SPEC = "tests/training/experiments"

Area = Literal[
    "engine", "search", "jobs", "notebook", "forms",
    "strategies", "channel", "cluster", "planning", "callbacks", "claims", "tracking",
]  # fmt: skip


class Mutant(NamedTuple):
    """`old` stands once in `file`; `tests` are what pytest is told to run."""

    area: Area
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "engine", "training/engine/rules/update_rules.py",
        "min(view.clocks.values()) <= self.bound", "min(view.clocks.values()) <= self.bound + 1",
        "a worker runs one push beyond the bound", (f"{PS}/rules/test_update_rules.py",),
    ),
    Mutant(
        "engine", "training/engine/rules/update_rules.py",
        "or arrival.staleness == 0", "or arrival.staleness <= 1",
        "sync takes gradients of the version before", (f"{PS}/rules/test_update_rules.py",),
    ),
    Mutant(
        "engine", "training/engine/rules/damping.py",
        "sum(stalenesses) / len(stalenesses))", "max(stalenesses))",
        "a round is damped by its stalest gradient", (f"{PS}/rules/test_damping.py",),
    ),
    Mutant(
        "engine", "training/engine/rules/damping.py",
        "return staleness <= self.limit", "return staleness < self.limit",
        "the limit itself is dropped", (f"{PS}/rules/test_damping.py",),
    ),
    Mutant(
        "engine", "training/engine/store/shard.py",
        "origins[0].seq <= applied[row", "origins[0].seq < applied[row",
        "a push that is sent again is applied twice", (f"{PS}/store/test_shard.py",),
    ),
    Mutant(
        "engine", "training/engine/store/shard.py",
        "if buffer not in used:", "if buffer != newest:",
        "a version that a worker reads is written over", (f"{PS}/store/test_shard.py",),
    ),
    Mutant(
        "engine", "training/engine/store/optimizer_state.py",
        "since.get(key, base) <= base", "since.get(key, base) >= 0",
        "a stale copy takes back what a step has made of its param groups", (f"{PS}/store/test_shard.py",),
    ),
    Mutant(
        "engine", "training/engine/worker/optimizer_view.py",
        "or value is not values[key]", "or value is values[key]",
        "a push brings what nobody has written", (f"{PS}/worker/test_worker_end.py",),
    ),
    Mutant(
        "engine", "training/engine/store/slots.py",
        "total.div_(count) if count > 1 else total", "total.div_(count - 1) if count > 1 else total",
        "the mean of a round is too large", (f"{PS}/test_concurrent.py::test_sync_applies_the_mean_of_all_workers",),
    ),
    Mutant(
        "engine", "training/engine/store/rounds.py",
        "round_.gathered < min(", "round_.gathered + 1 < min(",
        "a round is closed one gradient early",
        (f"{PS}/test_concurrent.py::test_sync_applies_the_mean_of_all_workers",),
    ),
    Mutant(
        "engine", "training/engine/worker/cursor.py",
        "self._commit([(row + _GONE, 1), (row + _HANDED, self._counters[row + _DONE])])",
        "self._commit([(row + _GONE, 1)])",
        "batches that a dead worker had taken are lost",
        (f"{PS}/worker/test_cursor.py::test_what_the_dead_had_taken_comes_first_then_its_share",),
    ),
    Mutant(
        "engine", "training/engine/worker/cursor.py",
        "if self._listed[_COUNT]:", "if not self._listed[_COUNT]:",
        "a commit that a kill broke off stays half done",
        (f"{PS}/memory/test_redo_log.py::test_a_kill_at_any_write_leaves_the_state_before_or_after",),
    ),
    Mutant(
        "engine", "training/engine/coordination/measures.py",
        "math.ceil(q * self.total)", "math.floor(q * self.total)",
        "quantiles of the staleness are one too low", (f"{PS}/coordination/test_measures.py",),
    ),
    Mutant(
        "engine", "training/engine/hyper.py",
        "not isinstance(value, Tensor) and value == group.get(key)", "value == group.get(key)",
        "a learning rate in a tensor that changes in place does not travel", (f"{PS}/test_hyper.py",),
    ),
    Mutant(
        "search", "training/search/study/pruners.py",
        "if len(others) < STARTUP or not own:", "if len(others) <= STARTUP or not own:",
        "the median pruner begins one trial late", (f"{SEARCH}/study/test_pruners.py",),
    ),
    Mutant(
        "search", "training/search/study/pruners.py",
        "max(1, len(values) // ETA) - 1", "max(1, len(values) // ETA)",
        "halving keeps one trial too many", (f"{SEARCH}/study/test_pruners.py",),
    ),
    Mutant(
        "search", "training/search/study/pruners.py",
        "math.log(samples / x0) / math.log(x1 / x0) if x0 > 0 else samples / x1", "(samples - x0) / (x1 - x0)",
        "curves are read along straight chords", (f"{SEARCH}/study/test_pruners.py",),
    ),
    Mutant(
        "search", "training/search/study/trials.py",
        "key=lambda record: (sign * record.values[0], record.number), default=None)",
        "key=lambda record: (record.values[0], record.number), default=None)",
        "the best is the lowest, whatever the goal", (f"{SEARCH}/study/test_trials.py",),
    ),
    Mutant(
        "search", "training/search/study/trials.py",
        "finished = [record for record in records if record.state == \"finished\" and math.isfinite(record.values[0])]",
        "finished = [record for record in records if record.state == \"finished\"]",
        "a trial that missed the target can be the best", (f"{SEARCH}/study/test_trials.py",),
    ),
    Mutant(
        "search", "training/search/driver/trial_source.py",
        "or batch < hit.batch:", "or batch <= hit.batch:",
        "a batch that ran out of memory is tried again", (f"{SEARCH}/driver/test_trial_source.py",),
    ),
    Mutant(
        "search", "training/search/driver/trial_outcome.py",
        "reached <= spec.target if lower", "reached < spec.target if lower",
        "who meets the target exactly has missed it", (f"{SEARCH}/driver/test_trial_outcome.py",),
    ),
    Mutant(
        "search", "training/search/driver/trial_outcome.py",
        "return \"again\" if result.cause.endswith(UNWATCHED) and not by_hand else \"failed\"", "return \"failed\"",
        "a run that died with the machine fails its trial", (f"{SEARCH}/driver/test_trial_outcome.py",),
    ),
    Mutant(
        "jobs", "training/jobs/leases.py",
        "return -request.priority,", "return request.priority,",
        "what is urgent comes last", (f"{JOBS}/test_schedule.py",),
    ),
    Mutant(
        "jobs", "training/jobs/schedule.py",
        "            place.reserve(request)\n", "",
        "small jobs overtake a big one for ever", (f"{JOBS}/test_schedule.py",),
    ),
    Mutant(
        "jobs", "training/supervisor/job_watch.py",
        "if now - self._moved < self.limits.stall_s:", "if now - self._checked < self.limits.stall_s:",
        "a job that shows no life is never ended", (f"{JOBS}/test_clock.py",),
    ),
    Mutant(
        "jobs", "training/supervisor/job_watch.py",
        "if now - since >= self.limits.grace_s:", "if now >= self.limits.grace_s:",
        "a job that is asked to stop gets no grace", (f"{JOBS}/test_clock.py",),
    ),
    Mutant(
        "jobs", "training/base/processes.py",
        "return facts is not None and facts.state not in \"ZX\" and self._same",
        "return facts is not None and self._same",
        "a zombie counts as a running job", ("tests/training/base/test_processes.py",),
    ),
    Mutant(
        "jobs", "training/base/processes.py",
        "return facts.start == self.start and self.boot == boot_id()", "return self.boot == boot_id()",
        "a later process with the same pid is taken for the job", ("tests/training/base/test_processes.py",),
    ),
    Mutant(
        "jobs", "training/jobs/gpus.py",
        "        if matching is None:\n            break", "        if matching is None:\n            continue",
        "GPUs behind an unknown one are seen", (f"{JOBS}/test_gpus.py",),
    ),
    Mutant(
        "jobs", "training/jobs/gpus.py",
        "        except nvml.NVMLError as error:  # the others work", "        except KeyError as error:",
        "a GPU that fails takes queue and pages with it", (f"{JOBS}/test_gpus.py",),
    ),
    Mutant(
        "jobs", "training/jobs/leases.py",
        "        self._shares = self._shares and request.accelerator != \"gpu\"\n", "",
        "small runs keep a GPU from a big one for ever", (f"{JOBS}/test_schedule.py",),
    ),
    Mutant(
        "jobs", "training/experiments/strategies.py",
        "return min(self.devices_written, self.processes)", "return self.processes",
        "leases count workers", (f"{JOBS}/test_gpu_checks.py",),
    ),
    Mutant(
        "jobs", "training/jobs/job_folder.py",
        "return \"stopped\" if self.stop_file.exists() else \"waiting\"", "return \"waiting\"",
        "a job that was stopped before its start waits for ever", (f"{JOBS}/test_job_folder.py",),
    ),
    Mutant(
        "notebook", "training/experiments/experiment.py",
        "return [first + offset for offset", "return [1 + offset for offset",
        "the seeds ignore the config's own", (f"{NOTEBOOK}/test_parse.py", f"{NOTEBOOK}/test_comparison.py"),
    ),
    Mutant(
        "notebook", "training/notebook/fences.py",
        "if token.type == \"fence\" and token.level == 0 else None", "if token.type == \"fence\" else None",
        "a fence in a quotation is run", (f"{NOTEBOOK}/test_parse.py",),
    ),
    Mutant(
        "notebook", "training/tracking/estimates.py",
        "return T_975[degrees - 1]", "return T_975[min(degrees, 19)]",
        "intervals are of one seed more", ("tests/training/tracking/test_estimates.py",),
    ),
    Mutant(
        "notebook", "training/tracking/estimates.py",
        "if amounts and count == len(amounts) else None", "if count else None",
        "a target that one run missed has a mean all the same", ("tests/training/tracking/test_estimates.py",),
    ),
    Mutant(
        "notebook", "training/notebook/store.py",
        "if current.stamp not in (stored.stamp, _stamp(content)):", "if not current.stamp:",
        "an edit made meanwhile is written over", (f"{NOTEBOOK}/test_store.py",),
    ),
    Mutant(
        "notebook", "training/notebook/comparison.py",
        "for value in by_name.values()}) > 1]", "for value in by_name.values()}) > 0]",
        "what is the same everywhere is told as a difference", (f"{NOTEBOOK}/test_comparison.py",),
    ),
    Mutant(
        "forms", "app/shared/form.py",
        " and isinstance(value, bool) == isinstance(field.default, bool)", "",
        "`true` is left out where the default is 1", ("tests/app/shared/test_form.py",),
    ),
    Mutant(
        "forms", "app/shared/form.py",
        "return days * 1440 + hours * 60 + minutes + seconds / 60", "return days * 1440 + hours * 60 + minutes",
        "the seconds of a budget are lost", ("tests/app/shared/test_form.py",),
    ),
    Mutant(
        "forms", "app/shared/form.py",
        "        self.drop(f\"trainer.{key}\")", "        get(config, f\"trainer.{key}\")",
        "the budget before stays and ends the run first", ("tests/app/shared/test_form.py",),
    ),
    Mutant(
        "forms", "app/search_setup/data.py",
        "low = max(low, type(low)(field.minimum))", "low = type(low)(low)",
        "a first range begins below what its field takes", ("tests/app/search_setup/test_data.py",),
    ),
    Mutant(
        "forms", "training/experiments/search/space.py",
        "return int(value).bit_length() - 1\n        if self.kind == \"grid\"",
        "return int(value).bit_length()\n        if self.kind == \"grid\"",
        "a study stores another power of two", (f"{SPEC}/search/test_space.py",),
    ),
    Mutant(
        "forms", "training/experiments/fields.py",
        "(value == low and field.exclusive_minimum)", "(value == low and field.exclusive_maximum)",
        "a learning rate of 0 is taken", (f"{SPEC}/test_validation.py",),
    ),
    Mutant(
        "engine", "training/engine/store/block_steps.py",
        "before == place - 1 and self._joins[place]", "self._joins[place]",
        "parameters on both sides of one without a gradient are stepped on as one",
        (f"{PS}/store/test_block_steps.py",),
    ),
    Mutant(
        "engine", "training/engine/store/block_steps.py",
        'foreach = not (fused or group["nesterov"])', "foreach = not fused",
        "the server's step changes the gradients that a worker has pushed", (f"{PS}/store/test_block_steps.py",),
    ),
    Mutant(
        "engine", "training/engine/store/block_steps.py",
        "torch._foreach_add_(counts, 1)", "torch._foreach_add_(counts, 2)",
        "Adam corrects its bias as after twice as many steps", (f"{PS}/store/test_block_steps.py",),
    ),
    Mutant(
        "strategies", "training/lightning/processes/forked.py",
        "gc.freeze()", "gc.isenabled()",
        "each worker copies all objects that it has inherited",
        ("tests/training/lightning/processes/test_run_workers.py",),
    ),
    Mutant(
        "planning", "training/planner/step_times.py",
        "return statistics.fmean(seconds[1:])", "return statistics.median(seconds[1:])",
        "plans of DDP leave out the slow ones of its all-reduces", ("tests/training/planner/test_step_times.py",),
    ),
    Mutant(
        "jobs", "training/supervisor/supervisor_loop.py",
        "self._owned &= self.workspace.hidden.exists()", "self._owned &= True",
        "the supervisor of a deleted workspace never ends", (f"{JOBS}/test_supervisor_handle.py",),
    ),
)  # fmt: skip
