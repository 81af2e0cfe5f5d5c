"""More mistakes for `tests.mutants`: in the strategies, all of which tests without a Trainer find."""

from tests.mutants.made import Mutant

HERE = "training/lightning/async_ps"
TESTS = "tests/training/lightning/async_ps"
ORDER = ("tests/training/lightning/data/test_epoch_order.py",)
SHARE = (f"{TESTS}/test_evaluation_share.py",)
WATCHED = (f"{TESTS}/test_changed_buffers.py",)
PLAYED = (f"{TESTS}/test_simulated_batches.py",)
DEATHS = (
    "tests/training/lightning/processes/test_deaths.py::test_what_follows_a_death_is_a_matter_of_who_it_was_and_how_many_there_were",
    "tests/training/lightning/processes/test_deaths.py::test_a_death_names_the_newest_checkpoint_that_is_there",
)
NUMBERS = (
    "tests/training/lightning/test_steps.py::test_who_asks_once_a_batch_hears_of_every_multiple_once",
    "tests/training/lightning/test_steps.py::test_a_step_is_a_number_to_everybody_else",
)
TURNS = (f"{TESTS}/test_streams.py::test_turns_of_a_stream_of_known_length_are_all_of_it",)
BUFFERS = ("tests/training/lightning/test_buffers.py",)
THREADS = (
    "tests/training/lightning/processes/test_threads.py::test_cores_are_shared_out_unless_the_person_has_set_threads",
)
STEP = (f"{TESTS}/test_applied_step.py::test_whoever_had_replaced_the_step_has_it_again",)

MUTANTS_OF_STRATEGIES = (
    Mutant(
        "strategies", "training/lightning/data/epoch_order.py",
        "\"PL_GLOBAL_SEED\", \"0\")) + epoch", "\"PL_GLOBAL_SEED\", \"0\"))",
        "every epoch has the same order", ORDER,
    ),
    Mutant(
        "strategies", "training/lightning/data/epoch_order.py",
        "full + bool(rest and not drop_last)", "full + bool(rest)",
        "a last batch that is to be dropped is trained on", ORDER,
    ),
    Mutant(
        "strategies", "training/lightning/data/epoch_order.py",
        ": (index + 1) * self._size]", ": (index + 1) * self._size - 1]",
        "each batch lacks its last sample", ORDER,
    ),
    Mutant(
        "strategies", "training/lightning/data/epoch_order.py",
        "if not self.is_known and epoch not in self.seeded:", "if not self.is_known:",
        "a worker alone goes on with other batches than several have begun", ORDER,
    ),
    Mutant(
        "strategies", "training/lightning/data/epoch_order.py",
        "            np.random.seed(seed % 2**32)  # what a user's sampler may draw from\n", "",
        "a sampler that draws from NumPy differs in each worker", ORDER,
    ),
    Mutant(
        "strategies", "training/lightning/process_group/evaluation.py",
        "return min(place, full - 1), place < full", "return min(place, full - 1), place <= full",
        "a batch that is repeated for want of another counts twice", SHARE,
    ),
    Mutant(
        "strategies", "training/lightning/process_group/evaluation.py",
        "self._worker == full % self._workers", "self._worker == 0",
        "whose the smaller last batch is differs from one process's order", SHARE,
    ),
    Mutant(
        "strategies", "training/lightning/process_group/evaluation.py",
        "int(rest > 0 and not source.drop_last and", "int(rest > 0 and",
        "a last batch that was dropped is waited for", SHARE,
    ),
    Mutant(
        "strategies", "training/lightning/process_group/evaluation.py",
        "while int(length * self._limit) < self.rounds:", "while int(length * self._limit) + 1 < self.rounds:",
        "a fraction of the validation loses a round", SHARE,
    ),
    Mutant(
        "strategies", "training/lightning/buffer_rows.py",
        "        for number in changed:\n            self.know(number)\n", "",
        "a buffer that changes is found again and again", WATCHED,
    ),
    Mutant(
        "strategies", "training/lightning/buffer_rows.py",
        "thorough = self._looks & (self._looks - 1) == 0", "thorough = False",
        "what is written through .data is not seen", WATCHED,
    ),
    Mutant(
        "strategies", "training/lightning/buffer_rows.py",
        "before[0] is mark[0] and before[1] == mark[1]", "before[1] == mark[1]",
        "a buffer in whose place another one was put is not seen", WATCHED,
    ),
    Mutant(
        "strategies", "training/lightning/buffer_rows.py",
        "key=lambda one: (not one.is_statistic, str(one.dtype))", "key=lambda one: (one.is_statistic, str(one.dtype))",
        "running statistics lie last", WATCHED,
    ),
    Mutant(
        "strategies", "training/engine/rules/settings.py",
        "if self.local.in_rounds or self.rule.averaged(workers) == workers:", "if True:",
        "a slow worker trains the rest of its share with nobody to average with",
        ("tests/training/lightning/async_ps/test_backup_workers.py",),
    ),
    Mutant(
        "strategies", "training/lightning/data/shared_loader.py",
        "fit_loop.restarting and self._was_ended:", "fit_loop.restarting:",
        "who gets nothing of a resumed epoch misses a step of the schedule",
        ("tests/training/lightning/async_ps/test_sharing_resume.py",),
    ),
    Mutant(
        "strategies", "training/lightning/data/batch_queue.py",
        "                self._in_vain.add(worker)\n", "",
        "a hundred workers that wait ask the cursor after each event", PLAYED,
    ),
    Mutant(
        "strategies", "training/lightning/data/batch_queue.py",
        "        self._in_vain.clear()\n        self._cursor.mark_dead(worker)\n",
        "        self._cursor.mark_dead(worker)\n",
        "what a dead worker had taken is lost", PLAYED,
    ),
    Mutant(
        "strategies", "training/lightning/data/batch_queue.py",
        "if self._meets and is_first and (", "if self._meets and not is_first and (",
        "workers begin an epoch before the others have ended the last", PLAYED,
    ),
    Mutant(
        "strategies", "training/lightning/processes/deaths.py",
        "        self._restarts -= 1\n", "",
        "a worker that keeps dying is started for ever", DEATHS,
    ),
    Mutant(
        "strategies", "training/lightning/processes/deaths.py",
        "        self._launch.mark_dead(lost.number)\n", "",
        "the others wait for a worker that is dead", DEATHS,
    ),
    Mutant(
        "strategies", "training/lightning/processes/deaths.py",
        "        if lost.number == 0:\n            return Reaction.END\n", "",
        "a run goes on without the worker that records it", DEATHS,
    ),
    Mutant(
        "strategies", "training/lightning/processes/deaths.py",
        "newest = max(checkpoints", "newest = min(checkpoints",
        "a death names the oldest checkpoint", DEATHS,
    ),
    Mutant(
        "strategies", "training/lightning/steps.py",
        "if self.until // n > self.since // n else", "if self.until // n >= self.since // n else",
        "what is done every n steps is done after each batch", NUMBERS,
    ),
    Mutant(
        "strategies", "training/lightning/steps.py",
        "return Step(int(self) + other, self.since + other, self.until + other)",
        "return Step(int(self) + other, self.since, self.until + other)",
        "the next step counts multiples that are long over", NUMBERS,
    ),
    Mutant(
        "strategies", "training/lightning/steps.py",
        "    if type(value) in (list, tuple):\n", "    if type(value) is list:\n",
        "a checkpoint with a step in a tuple cannot be loaded", NUMBERS,
    ),
    Mutant(
        "strategies", "training/lightning/data/data_sharing.py",
        "(batches), self._worker, None, self._workers)", "(batches), 0, None, self._workers)",
        "every worker takes the same batches of a stream", TURNS,
    ),
    Mutant(
        "strategies", "training/lightning/data/data_sharing.py",
        "-(-(length - self._worker) // self._workers)", "(length - self._worker) // self._workers",
        "the last batches of a stream are not counted", TURNS,
    ),
    Mutant(
        "strategies", "training/lightning/buffer_rows.py",
        "self.labels[worker, newest] == label else 1 - newest", "self.labels[worker, newest] == label else newest",
        "what others read is written over", BUFFERS,
    ),
    Mutant(
        "strategies", "training/lightning/buffer_rows.py",
        "if labels[place] <= most] or there", "if labels[place] < most] or there",
        "under a synchronous rule workers have buffers of two updates", BUFFERS,
    ),
    Mutant(
        "strategies", "training/lightning/processes/threads.py",
        "return min(now, max(1, cores() // processes))", "return max(1, cores() // processes)",
        "workers compute with more threads than torch begins with", THREADS,
    ),
    Mutant(
        "strategies", f"{HERE}/applied_step.py",
        "return step if isinstance(step, cls) else cls(optimizer)", "return cls(optimizer)",
        "a step is wrapped twice", STEP,
    ),
    Mutant(
        "strategies", "training/lightning/processes/key_file.py",
        "            if makes:\n", "            if not makes:\n",
        "a machine makes a key of its own, which the first does not know",
        ("tests/training/lightning/processes/test_key_file.py",),
    ),
    Mutant(
        "strategies", "training/lightning/processes/key_file.py",
        "    if environment.get(node_rank.KEY_FILE):\n", "    if key_file(environment):\n",
        "DDP, which needs no key file, asks for one", ("tests/training/lightning/processes/test_key_file.py",),
    ),
    Mutant(
        "strategies", "training/lightning/processes/node_monitors.py",
        "    return served_run.run_name(environment, next(_launches))",
        "    return served_run.run_name(environment, 0)",
        "a launch meets the one before it",
        ("tests/training/lightning/processes/test_node_monitors.py::test_each_launch_is_a_run_of_its_own",),
    ),
)  # fmt: skip
