"""The mistakes of `tests.mutants` that only a device shows whose copies end late."""

from tests.mutants.made import Mutant

LATE = ("tests/training/engine/test_late_copies.py",)
APPLYING = "training/engine/store"
WORKER = "training/engine/worker"

MUTANTS_OF_COPIES = (
    Mutant(
        "engine", f"{APPLYING}/hosts.py",
        "        for number in self.partition.order:\n            shard = self._shards[number]\n",
        "        for number in self.partition.order:\n            self.transfer.await_copy(number)\n"
        "        for number in self.partition.order:\n            shard = self._shards[number]\n",
        "no shard is applied before the last one's gradient has come", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/hosts.py",
        "            shard = self._shards[number]\n            self.transfer.await_copy(number)\n",
        "            shard = self._shards[number]\n",
        "a gradient is applied before it has come", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/hosts.py",
        "            self.transfer.await_copy(number)\n            self._shards[number].counters",
        "            self._shards[number].counters",
        "a server is handed a gradient before it has come", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/hosts.py",
        "        for number in self.partition.order:\n            self.transfer.await_copy(number)\n        while",
        "        while",
        "a gradient is part of a round before it has come", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/coded_traffic.py",
        "self._device.wait(self._marks[number])", "self._device.wait(self._marks[0])",
        "who waits for a shard waits for another", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/coded_traffic.py",
        "            self.await_copy(number)\n        return self.copied",
        "            pass\n        return self.copied",
        "a gradient is encoded before it has come", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/coded_traffic.py",
        "                image.down(target)\n            self._marks[number] = self._device.record()\n",
        "                self._marks[number] = self._device.record()\n                image.down(target)\n",
        "an event is recorded before the copy that it is for", LATE,
    ),
    Mutant(
        "engine", f"{APPLYING}/coded_traffic.py",
        "            self.await_copy(number)\n        for number in order:\n            places",
        "            pass\n        for number in order:\n            places",
        "a slot is used again while a dropped gradient is on its way there", LATE,
    ),
    Mutant(
        "engine", f"{WORKER}/client.py",
        "        self.replica.await_copy()\n        self.bases = self.host.pull(self._worker)\n",
        "        self.bases = self.host.pull(self._worker)\n",
        "a version is let go while it is copied to the device", LATE,
    ),
    Mutant(
        "engine", f"{WORKER}/client.py",
        "        self.replica.await_copy()\n        self.host.versions.fetch()\n",
        "        self.host.versions.fetch()\n",
        "a snapshot lets a version go while it is copied to the device", LATE,
    ),
    Mutant(
        "engine", f"{WORKER}/client.py",
        "        self.replica.await_gradients()  # that is computing, and not yet a part of the push\n", "",
        "a gradient is copied before the backward pass has made it", LATE,
    ),
    Mutant(
        "engine", f"{WORKER}/replica.py",
        "        self.await_copy()  # the last ones, which went to the same memory\n", "",
        "a second copy goes to where the first has not come yet", LATE,
    ),
    Mutant(
        "engine", f"{WORKER}/replica.py",
        "_known[number][0])  # while the next shard's frame is decoded\n        self._flying = self._device.record()\n",
        "_known[number][0])  # while the next shard's frame is decoded\n",
        "a frame is decoded over parameters that are on their way", LATE,
    ),
    Mutant(
        "engine", f"{WORKER}/replica.py",
        "which nobody else may be using.\"\"\"\n        self.await_copy()\n", "which nobody else may be using.\"\"\"\n",
        "what a person writes goes into a version that is copied to the device", LATE,
    ),
    Mutant(
        "engine", "training/engine/memory/device.py",
        "        for gpu in self._gpus:  #", "        for gpu in self._gpus[:1]:  #",
        "of a model over two GPUs one is waited for", LATE,
    ),
)  # fmt: skip
