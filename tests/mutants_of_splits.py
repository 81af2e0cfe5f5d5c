"""The mistakes of `tests.mutants` in how a model is split over workers."""

from tests.mutants_made import Mutant

HERE = "training/lightning/model_parallel"
TESTS = "tests/training/lightning/model_parallel"
TRAINER = (f"{TESTS}/test_model_parallel.py",)
ZOO = (f"{TESTS}/test_zoo_splits.py",)
VIRTUAL = (f"{TESTS}/test_sim_parts.py",)
MEASURED = (f"{TESTS}/test_part_measures.py",)
CLOCK = ("tests/training/pricing/test_split_clock.py",)
EQUAL = (f"{TESTS}/test_model_parallel.py::test_losses_and_weights_are_one_process_s",)
BROUGHT = (f"{TESTS}/test_brought_plan.py",)

MUTANTS_OF_SPLITS = (
    Mutant(
        "strategies",
        f"{HERE}/parts.py",
        "            dist.all_reduce(of_these, group=group)\n",
        "            pass\n",
        "gradients are clipped by the norm of a worker's part",
        EQUAL,
    ),
    Mutant(
        "strategies",
        f"{HERE}/parts.py",
        "place and placement.is_replicate() for place",
        "False for place",
        "a parameter that several workers have is as many times as large in a checkpoint",
        TRAINER,
    ),
    Mutant(
        "strategies",
        f"{HERE}/model_parallel.py",
        "_accelerator_connector.use_distributed_sampler = False",
        "_accelerator_connector.use_distributed_sampler = True",
        "a tensor group sees other batches than one process",
        TRAINER,
    ),
    Mutant(
        "strategies",
        f"{HERE}/model_parallel.py",
        "self.data_group if group is None else group, reduce_op",
        "group, reduce_op",
        "a sum that is logged counts a batch once for each worker of its tensor group",
        TRAINER,
    ),
    Mutant(
        "strategies",
        f"{HERE}/model_parallel.py",
        "dist.broadcast(buffer, self.tensor_rank, self.data_group)",
        "pass",
        "each worker validates with running statistics of its own",
        TRAINER,
    ),
    Mutant(
        "strategies",
        f"{HERE}/model_parallel.py",
        "_auto_add_worker_init_fn(dataloader, self.data_rank)",
        "_auto_add_worker_init_fn(dataloader, self.global_rank)",
        "loading processes of a tensor group augment a batch differently",
        TRAINER,
    ),
    Mutant(
        "strategies",
        f"{HERE}/model_parallel.py",
        "if self.lightning_module.trainer.predicting:",
        "if False:",
        "workers of shards predict different numbers of batches, and wait for each other",
        TRAINER,
    ),
    Mutant(
        "strategies",
        f"{HERE}/splitting.py",
        "(*(step for step in STEPS if hasattr(module, step)), *methods)",
        "methods",
        "a step that does not call forward computes with parts",
        TRAINER,
    ),
    Mutant(
        "strategies",
        "training/zoo/models/split_dropout.py",
        "units * parts[rank]",
        "units * parts[0]",
        "all workers drop the same units of their parts",
        ZOO,
    ),
    Mutant(
        "strategies",
        "training/lightning/callbacks/sample_pictures.py",
        "trainer.strategy if isinstance(trainer.strategy, ModelParallel) else None",
        "None",
        "worker 0 draws pictures by itself, and waits for the others' parameters",
        ZOO,
    ),
    Mutant(
        "strategies",
        f"{HERE}/brought_plan.py",
        "        dist.all_reduce(total, group=ctx.group)\n",
        "",
        "what each worker applies to its own heads learns from these alone",
        BROUGHT,
    ),
    Mutant(
        "strategies",
        f"{HERE}/splitting.py",
        "            _tie_again(module, tied)\n",
        "",
        "a table that is the output layer too becomes two",
        BROUGHT,
    ),
    Mutant(
        "strategies",
        f"{HERE}/sim_parts.py",
        "trainer.accumulate_grad_batches *= self.data_size",
        "pass",
        "virtual shards make an update of each worker's batch",
        VIRTUAL,
    ),
    Mutant(
        "strategies",
        f"{HERE}/sim_parts.py",
        "sums = (0.0, 0.0) if open_since and layer.name != OUTSIDE else None",
        "sums = None",
        "what lies between columns and rows is priced as if each worker computed all of it",
        VIRTUAL,
    ),
    Mutant(
        "strategies",
        f"{HERE}/sim_parts.py",
        "_counted(checkpoint, lambda count: count // self.data_size)",
        "checkpoint",
        "a virtual run's checkpoint has the batches of all shards, and a real one goes on too late",
        VIRTUAL,
    ),
    Mutant(
        "strategies",
        "training/lightning/data/workers_in_turn.py",
        "rank=worker",
        "rank=0",
        "all virtual shards have the batches of the first",
        VIRTUAL,
    ),
    Mutant(
        "strategies",
        "training/pricing/splits.py",
        "max(0.0, min(bubble_s, unlinked_s - own))",
        "max(0.0, unlinked_s - own)",
        "all that a worker waits in a pipeline is called its bubble",
        CLOCK,
    ),
    Mutant(
        "strategies",
        "training/pricing/split_clock.py",
        "self.settings.stragglers.get(worker, 1.0) * drawn",
        "drawn",
        "stragglers of a split model are as fast as others",
        CLOCK,
    ),
    Mutant(
        "strategies",
        "training/pricing/splits.py",
        "0.0 if backward and part.stays else",
        "",
        "what stays gathered is gathered again for the backward pass",
        ("tests/training/pricing/test_splits.py",),
    ),
    Mutant(
        "strategies",
        f"{HERE}/part_measures.py",
        "return replace(row, calls=batches * row.calls, nbytes=batches * row.nbytes, sent=batches * row.sent)",
        "return row",
        "bytes of an update of several batches are those of one, by layer",
        MEASURED,
    ),
    Mutant(
        "strategies",
        f"{HERE}/part_measures.py",
        'self._add("all-reduce", nbytes, 2 * (members - 1) / members * nbytes)',
        'self._add("all-reduce", nbytes, 2 * nbytes)',
        "a ring sends its own share, too, where bytes are measured",
        MEASURED,
    ),
)
