"""The mistakes of `tests.mutants` in what peers exchange."""

from tests.mutants.made import Mutant

ORACLES = ("tests/training/engine/worker/test_peer_client.py",)
SLOW = ("tests/training/engine/test_peer_drills.py::test_a_peer_that_is_slow_to_begin_has_written_nothing",)
DRILLS = ("tests/training/engine/test_peer_drills.py",)
GRAPHS = ("tests/training/engine/rules/test_topologies.py",)
TRAINER = ("tests/training/lightning/async_ps/test_peers.py",)
CLIENT = "training/engine/worker/peer_client.py"
ROOM = "training/engine/store/peer_room.py"

MUTANTS_OF_PEERS = (
    Mutant(
        "engine", "training/engine/worker/joined_worker.py",
        'yield from self.membership.rendezvous("first parameters compared")', "pass",
        "a peer compares its parameters with the mean that worker 0 has written meanwhile", SLOW,
    ),
    Mutant(
        "engine", CLIENT, "may become the mean of all.\"\"\"\n        self._mine.stepped()\n", "may.\"\"\"\n",
        "a peer that is slow to begin is said to have written", SLOW,
    ),
    Mutant(
        "engine", CLIENT, "        own_share, after = -math.fsum(parts), 1.0\n",
        "        own_share, after = -mixing * (1 - shares[worker]), 1.0\n",
        "the weight of a neighbour that sent nothing is lost", ORACLES,
    ),
    Mutant(
        "engine", CLIENT, "            own_share = shares[worker] - (1.0 / before if self._is_early else 1.0)\n",
        "            own_share = shares[worker] - 1.0\n",
        "with messages under way a step counts as much as the weight", ORACLES,
    ),
    Mutant(
        "engine", CLIENT, "        self.weight = after\n        self._mine.stepped()\n\n\nclass",
        "        self.weight = 1.0\n        self._mine.stepped()\n\n\nclass",
        "push-sum forgets the weight", ORACLES,
    ),
    Mutant(
        "engine", CLIENT, "        if not self._is_early:\n            yield from self._publish(before_step)\n",
        "        if not self._is_early:\n            yield from self._publish()\n",
        "a step is multiplied by the weight", ORACLES,
    ),
    Mutant(
        "engine", CLIENT, "        self.weight /= 2\n", "        self.weight *= 1.0\n",
        "a message brings weight that its sender keeps", ORACLES,
    ),
    Mutant(
        "engine", CLIENT, "in self.room.unopened(self._control.living()))", "in ())",
        "messages under way are no part of the mean", ORACLES,
    ),
    Mutant(
        "engine", ROOM, "                c.copy_(b if place in without else a.lerp_(b, 0.5))\n",
        "                c.copy_(b)\n                a.lerp_(b, 0.5)\n",
        "of a pair only one takes the mean", ORACLES,
    ),
    Mutant(
        "engine", ROOM, "        used = self.counters.current[worker], self.counters.held[worker]\n",
        "        used = (self.counters.current[worker],)\n",
        "a partner writes into what a peer computes with", ORACLES,
    ),
    Mutant(
        "engine", CLIENT,
        "        yield from self._await_readers(which)\n        room.write(worker, which, -self._round",
        "        room.write(worker, which, -self._round",
        "who leaves writes over what its receivers have not read", ORACLES,
    ),
    Mutant(
        "engine", "training/engine/coordination/membership.py",
        "is_member(peers, worker) and max(peers.published) >= following", "False",
        "who leaves is missing from rounds that others have begun with it", ORACLES,
    ),
    Mutant(
        "engine", "training/engine/coordination/membership.py",
        "(number - 1) % EPOCHS, max(peers.published) + 1\n", "(number - 1) % EPOCHS, max(peers.published)\n",
        "a round that somebody has published gets other members", DRILLS,
    ),
    Mutant(
        "engine", "training/engine/rules/topologies.py",
        "1 / (1 + max(len(receivers), len(sends[other])))", "1 / (1 + len(receivers))",
        "W is not symmetric where degrees differ", GRAPHS,
    ),
    Mutant(
        "engine", "training/lightning/async_ps/peers.py",
        "                        mixing=mixing,\n", "                        mixing=None,\n",
        "the strategy loses an argument", TRAINER,
    ),
)  # fmt: skip
