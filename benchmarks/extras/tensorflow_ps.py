"""TensorFlow's ParameterServerStrategy; `python tensorflow_ps.py --row ROW --seconds S` prints one row as JSON.

This process is the coordinator, which schedules steps onto two workers; variables live on one server. Each is a
process with one thread inside an operation. The batch is made inside the graph, in the row of one process too.
Needs tensorflow, psutil; nothing of Scalebook.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import socket
import time
from typing import Any

import psutil

BATCH, LEARNING_RATE, WARM_UP_S = 64, 0.01, 1.0


def import_tensorflow() -> Any:
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", GRPC_VERBOSITY="NONE")
    # Here, not above: the servers are started before this process has imported it.
    import tensorflow  # type: ignore[import-untyped]  # only in this script's own environment

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    return tensorflow


def serve(addresses: dict[str, list[str]], role: str, number: int) -> None:
    """Run a worker or the parameter server until it is ended."""
    tf = import_tensorflow()
    spec = tf.train.ClusterSpec(addresses)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    tf.distribute.Server(spec, job_name=role, task_index=number, config=config, protocol="grpc", start=True)
    while True:
        time.sleep(60)


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def make_step(tf: Any, counted: bool) -> Any:
    """The variables, and a function of one batch; `counted` keeps version and staleness beside the parameters."""
    tf.random.set_seed(0)
    sizes = [784, 512, 512, 10]
    weights = [tf.Variable(tf.random.uniform([a, b], -(a**-0.5), a**-0.5)) for a, b in itertools.pairwise(sizes)]
    biases = [tf.Variable(tf.zeros([b])) for b in sizes[1:]]
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]  # version, sum of staleness
    variables = [variable for pair in zip(weights, biases, strict=True) for variable in pair]

    def step(inputs: Any, labels: Any) -> None:
        base = counters[0].read_value()
        with tf.control_dependencies([base]), tf.GradientTape() as tape:
            read = [variable.read_value() for variable in variables]
            tape.watch(read)
            hidden = inputs
            for layer in range(3):
                hidden = hidden @ read[2 * layer] + read[2 * layer + 1]
                hidden = tf.nn.relu(hidden) if layer < 2 else hidden
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden))
        gradients = tape.gradient(loss, read)
        applied = [variable.assign_sub(LEARNING_RATE * g) for variable, g in zip(variables, gradients, strict=True)]
        if counted:
            with tf.control_dependencies(
                [operation if isinstance(operation, tf.Operation) else operation.op for operation in applied]
            ):
                counters[1].assign_add(counters[0].read_value() - base)
                counters[0].assign_add(1)

    return step, counters


def make_batch(tf: Any) -> tuple[Any, Any]:
    return tf.random.uniform([BATCH, 784]), tf.random.uniform([BATCH], 0, 10, tf.int64)


def alone(seconds: float) -> dict[str, float]:
    tf = import_tensorflow()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    step, _ = make_step(tf, counted=False)
    compiled = tf.function(lambda: step(*make_batch(tf)))

    def run_for(duration_s: float) -> int:
        steps, until = 0, time.perf_counter() + duration_s
        while time.perf_counter() < until:
            compiled()
            steps += 1
        return steps

    run_for(WARM_UP_S)
    started, cpu_s = time.perf_counter(), time.process_time()
    steps = run_for(seconds)
    rate = steps / (time.perf_counter() - started)
    cpu_ms = 1000 * (time.process_time() - cpu_s) / steps
    return {"updates_per_s": rate, "gradients_per_s": rate, "cpu_ms": cpu_ms, "staleness": 0.0}


def served(seconds: float, workers: int) -> dict[str, float]:
    addresses = {"worker": [free_address() for _ in range(workers)], "ps": [free_address()]}
    spawn = multiprocessing.get_context("spawn")
    roles = [("worker", number) for number in range(workers)] + [("ps", 0)]
    processes = [spawn.Process(target=serve, args=(addresses, *role), daemon=True) for role in roles]
    for process in processes:
        process.start()
    tf = import_tensorflow()
    spec = tf.train.ClusterSpec({**addresses, "chief": [free_address()]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        step, counters = make_step(tf, counted=True)

    scheduled = tf.function(lambda: strategy.run(step, args=make_batch(tf)))

    def run_for(duration_s: float) -> None:
        until = time.perf_counter() + duration_s
        while time.perf_counter() < until:
            for _ in range(8 * workers):  # enough in the queue that no worker waits for the coordinator
                coordinator.schedule(scheduled)
            coordinator.join()

    watched = [psutil.Process(), *(psutil.Process(process.pid) for process in processes)]
    run_for(5 * WARM_UP_S)
    before, started, cpu_s = int(counters[0].read_value()), time.perf_counter(), cpu_seconds(watched)
    run_for(seconds)
    updates, elapsed = int(counters[0].read_value()) - before, time.perf_counter() - started
    cpu_ms = 1000 * (cpu_seconds(watched) - cpu_s) / updates
    stale = float(counters[1].read_value()) / float(counters[0].read_value())
    for process in processes:
        process.kill()
    rate = updates / elapsed
    return {"updates_per_s": rate, "gradients_per_s": rate, "cpu_ms": cpu_ms, "staleness": stale}


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", choices=["one process", "parameter server x 2"], required=True)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    row = alone(given.seconds) if given.row == "one process" else served(given.seconds, 2)
    print(json.dumps(row), flush=True)
    os._exit(0)  # the coordinator's threads do not end by themselves once its workers are gone


if __name__ == "__main__":
    main()
