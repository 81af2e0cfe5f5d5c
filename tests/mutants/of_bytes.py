"""More mistakes for `tests.mutants`: in codecs, sparse tables, and local steps."""

from tests.mutants.made import PS, Mutant

MUTANTS_OF_BYTES = (
    Mutant(
        "engine", "training/engine/store/coded_traffic.py",
        "counters.kept[worker] = seq << 1 | 1 - (counters.kept[worker] & 1)",
        "counters.kept[worker] = seq << 1 | (counters.kept[worker] & 1)",
        "what a frame leaves out never counts", (f"{PS}/test_coded_drills.py",),
    ),
    Mutant(
        "engine", "training/engine/codecs/coder.py",
        "torch.sub(values, owed, out=owed)", "torch.sub(owed, values, out=owed)",
        "errors are fed back with the wrong sign", (f"{PS}/codecs/test_coder.py",),
    ),
    Mutant(
        "engine", "training/lightning/ddp/ddp.py",
        "_done(buffer.mul_(1 / len(frames)))", "_done(buffer)",
        "the decoded gradients of DDP's workers are added up, not averaged",
        ("tests/training/lightning/async_ps/test_ddp_codecs.py",),
    ),
    Mutant(
        "engine", "training/lightning/ddp/ddp.py",
        "self._kept = {tuple(places): tensor.clone() for places, tensor in state[\"residuals\"]}", "self._kept = {}",
        "what DDP's workers keep is lost on resume", ("tests/training/lightning/async_ps/test_ddp_codecs.py",),
    ),
    Mutant(
        "engine", "training/engine/memory/row_log.py",
        "while c[TAIL] < min(needed, version - 1) or (", "while c[TAIL] < version - 1 or (",
        "rows that somebody who holds an older version needs are forgotten", (f"{PS}/store/test_table_shard.py",),
    ),
    Mutant(
        "engine", "training/engine/memory/row_log.py",
        "return c[HEAD] if c[OPEN] > newest and c[HEAD] == c[OPEN] else 0", "return 0",
        "an update in which a process died stays half written into a table", (f"{PS}/store/test_table_shard.py",),
    ),
    Mutant(
        "engine", "training/engine/store/table_shard.py",
        "places[hits], hits, \"amin\")", "places[hits], hits, \"amax\")",
        "of several updates of a row only the newest is taken back", (f"{PS}/store/test_table_shard.py",),
    ),
    Mutant(
        "engine", "training/engine/worker/client.py",
        "gradients[place] = sparse.coalesce()", "gradients[place] = sparse",
        "of a row that a batch has twice one gradient is lost",
        (f"{PS}/test_sparse_tables.py::TestWorkers::test_concurrent_pushes_sum_exactly",),
    ),
    Mutant(
        "engine", "training/engine/worker/table_reads.py",
        "{t.place: ROW_NUMBER + t.row_bytes for", "{t.place: t.row_bytes for",
        "the numbers of fetched rows are not counted as bytes",
        (f"{PS}/test_sparse_tables.py::TestOneWorker::test_bytes_are_those_of_rows",),
    ),
    Mutant(
        "engine", "training/engine/store/coded_traffic.py",
        "shard.applied(worker) >= begun > shard", "shard.applied(worker) > begun > shard",
        "a worker that died before its residual counted pushes what it has pushed",
        (f"{PS}/test_coded_runs.py::test_a_worker_that_died_between_push_and_residual_goes_on_with_the_newer_one",),
    ),
    Mutant(
        "engine", "training/engine/rules/local_steps.py",
        "return since >= self.period(version)", "return since > self.period(version)",
        "local steps are pushed one too late", (f"{PS}/rules/test_local_steps.py",),
    ),
    Mutant(
        "engine", "training/engine/rules/local_steps.py",
        "self.share / math.sqrt(version + 1)", "self.share / (version + 1)",
        "the share of significance falls too fast", (f"{PS}/rules/test_local_steps.py",),
    ),
    Mutant(
        "engine", "training/engine/store/optimizer_partition.py",
        "nesterov=local.nesterov and momentum > 0", "nesterov=False",
        "DiLoCo's outer momentum is not Nesterov's",
        (f"{PS}/test_local_steps.py::test_diloco_is_nesterov_on_the_way",),
    ),
    Mutant(
        "engine", "training/engine/worker/local_client.py",
        "self._mine.move(gone)", "pass",
        "a worker draws the centre and is not drawn itself",
        (f"{PS}/test_local_steps.py::test_elastic_averaging_of_one_after_the_other",),
    ),
)  # fmt: skip
