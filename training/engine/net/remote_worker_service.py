"""The proxy side of one remote worker: waits for it to connect, and serves it to its end."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.memory.region import FINISHED
from scalebook.training.engine.net.acceptor import ConnectionAcceptor, GenerationCounter, WorkerGone
from scalebook.training.engine.net.connection_handoff import Listener
from scalebook.training.engine.net.handshake import Hello, Secret, ServerTls
from scalebook.training.engine.net.push_stream import PUSHES, has_push_stream
from scalebook.training.engine.net.version_mirror import refuse_far, settings_digest
from scalebook.training.engine.net.worker_calls import Calls, most_text
from scalebook.training.engine.net.worker_proxy import WorkerProxy
from scalebook.training.engine.store.table_optimizer import mark_tables
from scalebook.training.engine.worker.shared_end import SharedEnd


class RemoteWorkerService:
    """Of one worker. Made before the fork; a process calls `serve`, and a process that replaces it calls it again."""

    def __init__(
        self,
        run: SharedRun,
        end: Callable[[float], SharedEnd],
        listener: Listener,
        secret: Secret,
        tls: ServerTls | None,
        hello: Hello,
    ) -> None:
        """`end`: makes the worker's end over shared memory, with this deadline. `hello`: what the worker must send,
        apart from its generation."""
        refuse_far(run.settings)
        self._run, self._end, self._listener, self._secret, self._tls = run, end, listener, secret, tls
        self._hello = hello._replace(digest=settings_digest(run.settings))
        self.lives = GenerationCounter()
        """The worker's generations."""

    def serve(
        self,
        optimizers: Sequence[Optimizer],
        deadline_s: float,
        come_within_s: float,
        model: Module | None = None,
        lost: Callable[[str], None] = lambda why: None,
        opened: Callable[[ConnectionAcceptor], None] = lambda acceptor: None,
    ) -> None:
        """Serve the remote worker, with the same model and optimizers as it has; returns when it has trained and left.

        `WorkerGone` if it dies, does not connect within `come_within_s`, or leaves early. `deadline_s` bounds each of
        its waits. `lost` is called from another thread as soon as the worker is dead, and may end this process, which
        may be blocked.
        """
        if model is not None:
            mark_tables(model)
        end = self._end(deadline_s)
        acceptor = ConnectionAcceptor(self._listener, self._secret, self._tls, self._hello, self.lives, lost)
        calls, most = Calls(end, self._run, optimizers), most_text(end.workers)

        def serve_stream() -> None:
            with suppress(WorkerGone):  # which is said below
                WorkerProxy(calls.stream, acceptor, most, come_within_s, PUSHES).serve()

        stream = Thread(target=serve_stream, name="pushes", daemon=True)
        acceptor.open()
        if has_push_stream(self._run.settings):
            stream.start()
        opened(acceptor)
        try:
            WorkerProxy(calls, acceptor, most, come_within_s).serve()
        finally:
            acceptor.close()
            if stream.ident is not None:
                stream.join(deadline_s)
        if not self._run.control.counter(end.worker, FINISHED):
            raise WorkerGone("it left during training")
