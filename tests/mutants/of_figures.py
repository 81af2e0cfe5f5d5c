"""More mistakes for `tests.mutants`: in what is computed, recorded and said of runs: plans, claims, metrics."""

from tests.mutants.made import Mutant

PLANNING = "training/planner"
PLANS = "tests/training/planner"
PRICING = "training/pricing"
PRICED = "tests/training/pricing"
CALLBACKS = "training/callbacks"
CALLED = "tests/training/callbacks"
CLAIMS = "training/notebook/claims"
CLAIMED = "tests/training/notebook/claims"
TRACKING = "training/tracking"
TRACKED = "tests/training/tracking"
COLLECTIVE = f"{PLANS}/test_all_reduce.py"
REDUCED = (
    f"{COLLECTIVE}::test_a_ring_sends_all_but_a_share_twice_and_trees_take_fewer_messages",
    f"{COLLECTIVE}::test_workers_of_a_node_share_its_link_to_the_others",
)
HIDDEN = (
    f"{COLLECTIVE}::test_only_what_the_backward_pass_does_not_hide_is_waited_for",
    f"{COLLECTIVE}::test_fsdp_sends_half_as_much_again",
)
ONE = (f"{PLANS}/test_closed_forms.py::test_one_worker_waits_for_nobody",)
LINKS = (f"{PRICED}/test_links.py",)
UNITS = (f"{PRICED}/test_profile.py::test_units",)
TARGET = (f"{PLANS}/test_time_to_target.py",)
INTERVALS = (f"{CLAIMED}/test_intervals.py",)
DIRECTIONS = (f"{TRACKED}/test_directions.py",)
NAMES = (f"{TRACKED}/test_names.py",)
FIGURES = (f"{CALLED}/test_computed_figures.py",)

MUTANTS_OF_FIGURES = (
    Mutant(
        "planning", f"{PLANNING}/tuning/batch_try.py",
        "return trainer.is_global_zero and all(times", "return all(times",
        "a try of a batch size is ended by a worker that is ahead", (f"{PLANS}/tuning/test_batch_try.py",),
    ),
    Mutant(
        "planning", f"{PLANNING}/answering.py",
        "if self.gpus and workers > self.gpus:", "if False:",
        "DDP is planned for more workers than there are GPUs",
        (f"{PLANS}/test_answering.py::test_ddp_is_planned_for_as_many_workers_as_there_are_gpus",),
    ),
    Mutant(
        "planning", f"{PLANNING}/measuring.py",
        "return [ON_ONE_GPU, 1] if (gpus, least) == (1, 1) else [least]", "return [least]",
        "workers that share a GPU are not measured",
        (f"{PLANS}/test_measuring.py::test_as_many_are_measured_at_once_as_share_cores_or_gpus",),
    ),
    Mutant(
        "planning", f"{PLANNING}/reliability.py",
        "if own_network and profile.gpus:", "if False:",
        "plans on GPUs promise what plans on cores kept",
        (f"{PLANS}/test_reliability.py::test_a_plan_on_a_gpu_borrows_no_trust_from_cores",),
    ),
    Mutant(
        "strategies", "training/lightning/processes/strategy_launcher.py",
        'if device.type == "cuda":  # on a CPU', "if True:  # on a CPU",
        "a CPU run is refused where CUDA cannot be used",
        (("tests/training/lightning/processes/test_cuda_fork.py::"
         "test_on_a_cpu_a_fork_of_a_process_that_has_counted_gpus_trains"),),
    ),
    Mutant(
        "planning", f"{PRICING}/reductions.py",
        "2 * (members - 1) / members * nbytes", "2 * nbytes",
        "a ring sends its own share, too", REDUCED,
    ),
    Mutant(
        "planning", f"{PRICING}/reductions.py",
        "2 * nbytes, 2 * math.ceil(math.log2(members))", "2 * nbytes, math.ceil(math.log2(members))",
        "a tree has no way back", REDUCED,
    ),
    Mutant(
        "planning", f"{PRICING}/reductions.py",
        "nodes = math.ceil(workers / node.workers)", "nodes = workers // node.workers",
        "a node that is not full sends nothing", REDUCED,
    ),
    Mutant(
        "planning", f"{PRICING}/reductions.py",
        "+ _flat_s(nbytes, nodes, link, profile)", "+ _flat_s(nbytes, workers, link, profile)",
        "each worker of a node is a node", REDUCED,
    ),
    Mutant(
        "planning", f"{PLANNING}/all_reduce.py",
        "limit = 1e6 * min(reductions.FIRST_MB, cap_mb)", "limit = 1e6 * cap_mb",
        "the first bucket is as large as the others", (f"{COLLECTIVE}::test_buckets_are_those_of_torch",),
    ),
    Mutant(
        "planning", f"{PLANNING}/all_reduce.py",
        "update_s *= workers if self.gathers else 1", "update_s *= 1",
        "frames of all workers are decoded in the time of one", HIDDEN,
    ),
    Mutant(
        "planning", f"{PLANNING}/all_reduce.py",
        "network.link, profile) / 2  # a gather", "network.link, profile)  # a gather",
        "a gather costs an all-reduce", HIDDEN,
    ),
    Mutant(
        "planning", f"{PLANNING}/all_reduce.py",
        "math.ceil(workers / slow.cores) if alone", "workers // slow.cores if alone",
        "three workers on two cores make one turn", (f"{COLLECTIVE}::test_cores_that_are_shared_make_turns",),
    ),
    Mutant(
        "planning", f"{PLANNING}/all_reduce.py",
        "min(weights, 2e6 * self.bucket_mb)", "2e6 * self.bucket_mb",
        "a sharded model takes more memory than a whole one",
        (f"{COLLECTIVE}::test_a_worker_holds_weights_gradients_and_state_or_its_shares_of_them",),
    ),
    Mutant(
        "planning", f"{PRICING}/reductions.py",
        "half = math.sqrt(3) * spread", "half = math.sqrt(2) * spread",
        "evenly spread times are less spread than was said", (f"{COLLECTIVE}::test_the_last_of_several_gradients",),
    ),
    Mutant(
        "planning", f"{PLANNING}/closed_forms.py",
        "latency_s = 2 * (mean_s", "latency_s = (mean_s",
        "a pull has no latency", ONE,
    ),
    Mutant(
        "planning", f"{PLANNING}/closed_forms.py",
        "clock.stragglers.get(0, 1.0)", "clock.stragglers.get(1, 1.0)",
        "a single worker that is slow is not", ONE,
    ),
    Mutant(
        "planning", f"{PLANNING}/closed_forms.py",
        "if not plain or (shards > 1 and isinstance(clock.server_s, Distribution)):", "if not plain:",
        "of several draws the mean is taken for the largest",
        (f"{PLANS}/test_closed_forms.py::test_one_worker_of_a_rule_with_other_pushes_is_played",),
    ),
    Mutant(
        "planning", f"{PRICING}/links.py",
        "PAYLOAD * gigabits * 1e9 / 8", "gigabits * 1e9 / 8",
        "headers carry gradients", LINKS,
    ),
    Mutant(
        "planning", f"{PRICING}/links.py",
        "return Network(link, Link(0.0, link.bandwidth))", "return Network(link, link)",
        "a message waits for the network twice", LINKS,
    ),
    Mutant(
        "planning", f"{PRICING}/quantities.py",
        "value / 8 for prefix, value", "value for prefix, value",
        "bits are bytes", UNITS,
    ),
    Mutant(
        "planning", f"{PRICING}/quantities.py",
        "for entry in reversed(scale) if value", "for entry in scale if value",
        "seconds are shown in microseconds", UNITS,
    ),
    Mutant(
        "planning", f"{PLANNING}/time_to_target.py",
        "self.updates / self.updates_per_s", "self.updates * self.updates_per_s",
        "more updates a second take longer", TARGET,
    ),
    Mutant(
        "planning", f"{PLANNING}/time_to_target.py",
        "best = min(reached, key=", "best = max(reached, key=",
        "the slowest is recommended", TARGET,
    ),
    Mutant(
        "planning", f"{PLANNING}/updates_to_target.py",
        "\"server_link\": _link(clock.server_link)", "\"server_link\": _link(clock.link)",
        "updates are counted on another clock than their seconds", TARGET,
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/batches.py",
        "return batch.shape[0] if batch.ndim else 1", "return batch.shape[-1] if batch.ndim else 1",
        "a batch has as many samples as a sample has numbers", (f"{CALLED}/test_batches.py",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/batches.py",
        "and loss.numel() == 1 else None", "else None",
        "a tensor of several losses is one", (f"{CALLED}/test_batches.py",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/step_counts.py",
        "min(exposed * self.trainer.global_step, share * self.compute)",
        "exposed * self.trainer.global_step",
        "a worker's late start counts in every step", (f"{CALLED}/test_step_counts.py",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/step_counts.py",
        "measured[\"backward_comm_time\"] - measured.get(", "measured[\"backward_comm_time\"] + measured.get(",
        "what computing hides is waited for", (f"{CALLED}/test_step_counts.py",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/computed_figures.py",
        "        self.open_window(time, counts, workers)\n        return rates\n", "        return rates\n",
        "rates are those of the whole run", FIGURES,
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/computed_figures.py",
        "if computed - updates > len(times) else {}", "if computed > updates else {}",
        "a gradient that is under way counts as averaged", FIGURES,
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/metric_summary.py",
        "if not math.isnan(value) and (math.isnan(before) or", "if (math.isnan(before) or",
        "no number is the best value", FIGURES,
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/metric_summary.py",
        "choose = min if directions.direction(metric, recorded=self.directions).lower else max",
        "choose = max if directions.direction(metric, recorded=self.directions).lower else min",
        "the worst accuracy is the best", FIGURES,
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/divergence.py",
        "if not math.isfinite(value := loss.item()):", "if math.isnan(value := loss.item()):",
        "a run goes on with an infinite loss",
        (f"{CALLED}/test_ends.py::test_a_loss_that_is_no_number_raises_with_the_count_of_updates",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/job_files.py",
        "return max(1, min(MOST_STEPS,", "return max(2, min(MOST_STEPS,",
        "workers whose steps are long are asked too rarely",
        (f"{CALLED}/test_ends.py::test_the_pace_of_workers_in_step_follows_their_speed",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/resource_limits.py",
        "self.share / workers", "self.share",
        "workers on one GPU take the memory of others", (f"{CALLED}/test_resource_limits.py",),
    ),
    Mutant(
        "callbacks", f"{CALLBACKS}/noise_scale.py",
        "1 / samples if samples else 0.0", "0.0",
        "a small training set counts as endless",
        (f"{CALLED}/test_noise_scale.py::test_a_small_training_set_is_drawn_without_replacement",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "half = student_quantile(0.5 + level / 2, self.degrees)", "half = student_quantile(level, self.degrees)",
        "an interval of 95 % is one of 90 %", INTERVALS,
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "statistics.stdev(values) / math.sqrt(len(values))", "statistics.stdev(values)",
        "more seeds make no interval smaller", INTERVALS,
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "no_low=self.no_low or other.no_high,", "no_low=self.no_low or other.no_low,",
        "a ratio over one that is open has both ends", INTERVALS,
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "        return r > 0\n", "        return True\n",
        "pairs of which one falls as the other rises are pairs", INTERVALS,
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "low, high = self.first - half, self.last + half", "low, high = self.first - half, self.first + half",
        "what choosing the rates flatters is not in the interval", INTERVALS,
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "sign * value <= sign * target", "sign * value < sign * target",
        "who is exactly at the target is not there", (f"{CLAIMED}/test_intervals.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/intervals.py",
        "return Amount(points[0][1], at_once=True)", "return Amount(points[0][1])",
        "who was there at the first validation took exactly that", (f"{CLAIMED}/test_intervals.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/evidence.py",
        "* (1 if lower else -1) if reached", "if reached",
        "of what should be large the smallest is chosen", (f"{CLAIMED}/test_point_choice.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/evidence.py",
        "return len(seeds) - len(reached), figure,", "return 0, figure,",
        "whoever misses a seed may have been fast", (f"{CLAIMED}/test_point_choice.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/looks.py",
        "level = _level(nodes, masses, growths[-1], goal)", "level = alpha",
        "each look has its own chance", (f"{CLAIMED}/test_looks.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/looks.py",
        "if look is present and same:", "if False:",
        "who goes back to fewer seeds makes a new look", (f"{CLAIMED}/test_looks.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/judging.py",
        "any(look.same_runs(past) for past in lock.looks if past.spent)", "True",
        "no look is recorded", (f"{CLAIMED}/test_looks.py",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/power.py",
        "statistics.variance(side) * (len(side) - 1) for side in several",
        "statistics.variance(side) for side in several",
        "a spread is pooled without weights",
        (f"{CLAIMED}/test_power.py::test_the_spread_is_pooled_over_sides_with_two_runs_or_more",),
    ),
    Mutant(
        "claims", f"{CLAIMS}/written_tables.py",
        "if BEGIN.fullmatch(text) or END.fullmatch(text):", "if BEGIN.fullmatch(text):",
        "readers see a comment of ours",
        (f"{CLAIMED}/test_written_tables.py::test_readers_do_not_see_the_comments",),
    ),
    Mutant(
        "tracking", f"{TRACKING}/directions.py",
        "return Direction(chosen == \"min\", \"said\")", "return Direction(chosen == \"max\", \"said\")",
        "a person's word is turned round", DIRECTIONS,
    ),
    Mutant(
        "tracking", f"{TRACKING}/directions.py",
        "    if words & LOWER:\n", "    if words & LOWER and not words & HIGHER:\n",
        "a top-1 error is better when it is larger", DIRECTIONS,
    ),
    Mutant(
        "tracking", f"{TRACKING}/directions.py",
        "for metric, goals in by_metric.items() if len(goals) == 1}", "for metric, goals in by_metric.items()}",
        "callbacks that disagree decide by chance", DIRECTIONS,
    ),
    Mutant(
        "tracking", f"{TRACKING}/directions.py",
        "goals.setdefault(metric, cast(Goal, goal))", "goals[metric] = cast(Goal, goal)",
        "the run that says it last decides", DIRECTIONS,
    ),
    Mutant(
        "tracking", f"{TRACKING}/names.py",
        "return \"virtual seconds\" if all(simulated) else", "return \"virtual seconds\" if any(simulated) else",
        "measured seconds are called virtual", NAMES,
    ),
    Mutant(
        "tracking", f"{TRACKING}/names.py",
        "key=lambda name: (not name.endswith(\"loss\"), name))", "key=lambda name: name)",
        "a model's own loss is not what its runs are judged by", NAMES,
    ),
    Mutant(
        "tracking", f"{TRACKING}/names.py",
        "(VAL_BITS_PER_DIM, VAL_ACCURACY,", "(VAL_ACCURACY, VAL_BITS_PER_DIM,",
        "a generative model is judged by its accuracy", NAMES,
    ),
    Mutant(
        "tracking", f"{TRACKING}/notes.py",
        "{content[end:].strip()}", "{content[start:].strip()}",
        "a description grows each time that it is read", (f"{TRACKED}/test_notes.py",),
    ),
    Mutant(
        "tracking", f"{TRACKING}/worker_figures.py",
        "if isinstance(raw, bool) or not isinstance(raw, int | float):", "if not isinstance(raw, int | float):",
        "true is a figure", (f"{TRACKED}/test_worker_figures.py",),
    ),
    Mutant(
        "tracking", f"{TRACKING}/worker_figures.py",
        "if self._size > LIVE:", "if self._size > LARGEST:",
        "the file of a run with many workers grows without end", (f"{TRACKED}/test_worker_figures.py",),
    ),
    Mutant(
        "tracking", "training/cluster/mlflow_relay.py",
        "lines = [line for line in lines if line[0] == run_id]", "lines = [*lines]",
        "a machine writes into another run's record", (f"{TRACKED}/test_spool.py",),
    ),
    Mutant(
        "tracking", f"{TRACKING}/logger.py",
        "                for _ in batch:\n                    self._points.popleft()\n",
        "                self._points.clear()\n",
        "points that come while others are written are lost", (f"{TRACKED}/test_metric_writer.py",),
    ),
)  # fmt: skip
