"""More mistakes for `tests.mutants`: in the channel between machines, and on a cluster. None needs Ray to be found."""

from tests.mutants.made import PS, Mutant

CHANNEL = "training/engine/net"
FAR = f"{PS}/net"
ELSEWHERE = (f"{FAR}/test_generations.py::test_who_belongs_elsewhere_is_told_so",)
CLUSTER = "training/cluster"
ON_CLUSTER = "tests/training/cluster"

MUTANTS_OF_MACHINES = (
    Mutant(
        "channel", f"{CHANNEL}/wire.py",
        "if text > most_text:", "if text > most_text + 1:",
        "room is made for a text that is too long", (f"{FAR}/test_wire.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/wire.py",
        "or zero or kind not in", "or kind not in",
        "bits without a meaning pass", (f"{FAR}/test_wire.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/wire.py",
        "        if head.body != size:\n", "        if head.body < size:\n",
        "a body larger than its room is read", (f"{FAR}/test_wire.py::test_a_body_that_is_not_of_the_plan_is_refused",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/handshake.py",
        "secret.proof(b\"worker\", mine, theirs, seen)", "secret.proof(b\"server\", mine, theirs, seen)",
        "who throws the server's own proof back is let in", (f"{FAR}/test_handshake.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/handshake.py",
        "stat.S_IMODE(status.st_mode) & 0o077", "stat.S_IMODE(status.st_mode) & 0o007",
        "a key that a group can read is used", (f"{FAR}/test_handshake.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/handshake.py",
        "raise Refused(str(refusal[\"why\"]), bool(refusal[\"later\"]))", "raise Refused(str(refusal[\"why\"]))",
        "who may come later does not", (f"{FAR}/test_handshake.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/handshake.py",
        "certificate.public_bytes(serialization.Encoding.DER)", "certificate.public_bytes(pem)",
        "the proof is of another fingerprint than the one that is seen", (f"{FAR}/test_handshake.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/acceptor.py",
        "return self.newest < generation <=", "return self.newest <= generation <=",
        "one life of a worker begins twice", (f"{FAR}/test_acceptor.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/acceptor.py",
        "return os.lseek(self._file, 1, os.SEEK_CUR)", "return os.lseek(self._file, 0, os.SEEK_CUR)",
        "two processes are the same worker", (f"{FAR}/test_acceptor.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/connection_handoff.py",
        "magic == _MAGIC and number < count else None", "magic == _MAGIC and number <= count else None",
        "an address of a handoff that does not exist ends who listens for all", (f"{FAR}/test_connection_handoff.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/raw_tensors.py",
        "lent.tensor = tensor", "lent.tensor = None",
        "bytes that are on their way are freed", (f"{FAR}/test_raw_tensors.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/acceptor.py",
        "if hello.digest != expected.digest:", "if not hello.digest:",
        "machines with other settings take part", ELSEWHERE,
    ),
    Mutant(
        "channel", f"{CHANNEL}/acceptor.py",
        "if (hello.run, hello.worker) != (expected.run, expected.worker):", "if hello.worker != expected.worker:",
        "a worker of another run takes part", ELSEWHERE,
    ),
    Mutant(
        "channel", f"{CHANNEL}/remote_shared_state.py",
        "        if len(message) > MOST_MESSAGE_BYTES:", "        if len(message) >= MOST_MESSAGE_BYTES:",
        "the longest message is refused",
        (f"{FAR}/test_remote_end.py::test_a_message_that_is_too_long_is_refused",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/remote_tables.py",
        "min(start + rows_at_once(table), table.rows)", "min(start + rows_at_once(table), table.rows - 1)",
        "a table comes back without its last row", (f"{FAR}/test_remote_tables.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/mailbox.py",
        "return self._texts[read_count : read_count + 8]", "return self._texts[read_count + 1 : read_count + 8]",
        "a machine misses what the server's monitor has said", (f"{FAR}/test_mailbox.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/mailbox.py",
        "if monotonic() - last_request > DEAD_S", "if monotonic() - last_request > 2 * DEAD_S",
        "a machine that is silent is missed late", (f"{FAR}/test_mailbox.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/mailbox.py",
        'split()[0] in ("T", "t")', 'split()[0] in ("T", "t", "S")',
        "a first monitor that waits ends the run on all others", (f"{FAR}/test_mailbox.py",),
    ),
    Mutant(
        "channel", f"{CHANNEL}/version_mirror.py",
        "hashlib.blake2b(repr(replace(settings, trace=None))", "hashlib.blake2b(repr(settings)",
        "machines that trace into folders of their own refuse each other", (f"{FAR}/test_mailbox.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/cluster_token.py",
        "if stat.S_IMODE(path.stat().st_mode) & OWNER_ONLY:", "if stat.S_IMODE(path.stat().st_mode) & 0o007:",
        "a token that a group can read lets machines in", (f"{ON_CLUSTER}/test_cluster_token.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/cluster_token.py",
        "or len(word) < BYTES:", "or not word:",
        "any word is a token", (f"{ON_CLUSTER}/test_cluster_token.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/cluster_token.py",
        "    if not path.exists():\n        put_secret", "    if path.name:\n        put_secret",
        "a head that starts again shuts its machines out", (f"{ON_CLUSTER}/test_cluster_token.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/ray_daemons.py",
        "environ.get(\"RAY_AUTH_MODE\") != \"token\"", "environ.get(\"RAY_AUTH_MODE\", \"token\") != \"token\"",
        "a cluster without a token is met", (f"{ON_CLUSTER}/test_reaching.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/ray_daemons.py",
        "if environ.get(\"RAY_AUTH_TOKEN\"):", "if environ.get(\"RAY_AUTH_TOKEN_PATH\"):",
        "a token in the environment does not count", (f"{ON_CLUSTER}/test_reaching.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/ray_executor.py",
        "return state if state is not None and state.handle == handle else None", "return state",
        "an earlier start of a job answers for the present one", (f"{ON_CLUSTER}/test_cluster_spool.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/ray_executor.py",
        "return cluster.ready if cluster is not None and cluster.daemon.alive() else []",
        "return cluster.ready if cluster is not None else []",
        "machines that a dead cluster daemon has named get jobs", (f"{ON_CLUSTER}/test_cluster_spool.py",),
    ),
    Mutant(
        "cluster", "training/jobs/begin_request.py",
        "\"\\n\".join([*machines, *", "\"\\n\".join([*machines[1:], *",
        "a part of an earlier attempt is taken for one of this", (f"{ON_CLUSTER}/test_cluster_spool.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/rendezvous.py",
        "\"NODE_RANK\": str(node)", "\"NODE_RANK\": str(node - 1)",
        "a machine takes the place of the one before it", (f"{ON_CLUSTER}/test_cluster_spool.py",),
    ),
    Mutant(
        "cluster", "training/jobs/job_nodes.py",
        "BACK_S * 2 ** (len(ended) - 1)", "BACK_S * (len(ended) - 1)",
        "a machine where a part has ended has another at once", ("tests/training/jobs/test_schedule.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/incoming_files.py",
        "if now != stamp or offset > facts.st_size:", "if offset > facts.st_size:",
        "half of one state of a file is joined to half of another", (f"{ON_CLUSTER}/test_incoming_files.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/incoming_files.py",
        "        if piece.offset > size_of(target):\n            return\n", "",
        "a log that lacks a piece goes on behind the gap", (f"{ON_CLUSTER}/test_incoming_files.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/incoming_files.py",
        "or path in HERE or any(", "or any(",
        "a machine writes into a job's own record", (f"{ON_CLUSTER}/test_incoming_files.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/outgoing_files.py",
        "self.trusted, sorted(self.stays.items())]", "self.trusted]",
        "a job runs beside other data than its own", (f"{ON_CLUSTER}/test_outgoing_files.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/node_connection.py",
        "    for job in (*parts, name):\n        folder", "    for job in (name,):\n        folder",
        "parts of a start that was given up begin all the same", (f"{ON_CLUSTER}/test_comes_to_nothing.py",),
    ),
    Mutant(
        "cluster", f"{CLUSTER}/node_connection.py",
        "    IncomingFiles(folder.path).finish()\n    write_state(folder.path, replace(state, alive=False",
        "    write_state(folder.path, replace(state, alive=False",
        "an end that has come with its machine's last words is lost", (f"{ON_CLUSTER}/test_comes_to_nothing.py",),
    ),
)  # fmt: skip
