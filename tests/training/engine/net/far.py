"""Workers that reach the shards by the channel, over loopback, in one process: each has its proxy in a thread."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.acceptor import ConnectionAcceptor, WorkerGone
from scalebook.training.engine.net.channel import ProxyAddress
from scalebook.training.engine.net.handshake import KEY_BYTES, Secret, ServerTls
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.worker.worker_end import JoinedEnd
from tests.training.engine.worker.peers import counting

LOOPBACK = "127.0.0.1"
SECRET = Secret(bytes(range(KEY_BYTES)))
RUN = "a run"
DEADLINE_S = 20.0
SHAPES: Sequence[tuple[int, ...]] = ((3,), (2, 2))
Make = Callable[[Sequence[Parameter]], Optimizer]


class Far:
    """The workers of a run that were asked for, the present life of each. `shapes`: of the model's parameters;
    `listen`: where they are waited for; `model`: made where more than shapes counts."""

    def __init__(
        self,
        launch: Launch,
        make: Make,
        tls: ServerTls | None = None,
        shapes: Sequence[tuple[int, ...]] = SHAPES,
        listen: Callable[[], socket.socket] = lambda: listening(LOOPBACK),
        model: Callable[[], Module] | None = None,
    ) -> None:
        self.launch, self._make, self._tls, self._shapes, self._model = launch, make, tls, shapes, model
        self.listeners = [listen() for _ in launch.living()]
        self._posts = [launch.post(w, RUN, one, SECRET, tls) for w, one in enumerate(self.listeners)]
        self.ends: dict[int, RemoteEnd] = {}
        self.acceptors: dict[int, ConnectionAcceptor] = {}
        self.endings: list[BaseException] = []
        self.lost: list[str] = []  # what doors have said of workers that are dead
        self._threads: dict[int, threading.Thread] = {}

    def reach(self, worker: int) -> ProxyAddress:
        host, port = self.listeners[worker].getsockname()[:2]
        return ProxyAddress(host, port, SECRET, self._tls is not None)

    def newest(self, worker: int) -> int:
        """The generation that has begun last."""
        return self._posts[worker].lives.newest

    def stand_in(self, worker: int, deadline_s: float) -> None:
        """Begin one; the last one's life is over."""
        self.end(worker)
        opened = threading.Event()
        model = None if self._model is None else self._model()
        shapes = [Parameter(torch.zeros(shape)) for shape in self._shapes]
        optimizer = self._make(shapes if model is None else list(model.parameters()))

        def serve() -> None:
            def note(acceptor: ConnectionAcceptor) -> None:
                self.acceptors[worker] = acceptor
                opened.set()

            try:
                self._posts[worker].serve(
                    [optimizer], deadline_s, DEADLINE_S, model, lost=self.lost.append, opened=note
                )
            except WorkerGone as error:
                self.endings.append(error)

        self._threads[worker] = threading.Thread(target=serve)
        self._threads[worker].start()
        assert opened.wait(60)  # the first of a process imports what an optimizer needs

    def worker(self, worker: int, deadline_s: float) -> RemoteEnd:
        """A new life of this worker, on both sides."""
        self.stand_in(worker, deadline_s)
        settings, workers = self.launch.figures.settings, len(self.listeners)
        end = RemoteEnd(self.reach(worker), RUN, settings, worker, workers, DEADLINE_S)
        self.ends[worker] = end
        return end

    def end(self, worker: int) -> None:
        if worker in self.ends:
            self.ends.pop(worker).close()
        if worker in self.acceptors:
            self.acceptors.pop(worker).close()
        if worker in self._threads:
            thread = self._threads.pop(worker)
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def close(self) -> None:
        for worker, listener in enumerate(self.listeners):
            self.end(worker)
            listener.close()


@contextmanager
def far(
    launch: Launch, make: Make, tls: ServerTls | None = None, model: Callable[[], Module] | None = None
) -> Iterator[Far]:
    """While the block lasts."""
    workers = Far(launch, make, tls, model=model)
    try:
        yield workers
    finally:
        workers.close()


def joined(end: RemoteEnd) -> tuple[JoinedEnd, list[Parameter]]:
    parameters = [Parameter(torch.zeros(shape)) for shape in SHAPES]
    return end.join([counting(parameters)]), parameters
