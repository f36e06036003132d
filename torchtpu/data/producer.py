"""The thread that loads ahead.

Two queues join it to the loop: one brings batches, one carries requests for more. Neither holds a lock while Python runs, so that a
loop may be given up anywhere: in a destructor, in a signal handler, at exit.
"""

from __future__ import annotations

import atexit
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch

from torchtpu.data.report import Clock
from torchtpu.data.states import State
from torchtpu.runtime import loading

_EXIT_WAIT_S = 2.0


@dataclass
class Batch:
    """One batch that is ready. ``state`` is the source's after it."""

    take: Callable[[], Any]
    state: Any


@dataclass
class End:
    """No batch will follow: the source has ended, or raised ``error``."""

    error: BaseException | None = None
    state: Any = None


class Producer:
    """Pulls from an iterator and prepares what comes, at most ``depth`` batches ahead of those that were asked for."""

    def __init__(
        self, iterator: Iterator[Any], owns_iterator: bool, prepare: Callable[[Any], Callable[[], Any]], depth: int,
        state: State | None, clock: Clock,
    ) -> None:
        self.ready: SimpleQueue[Batch | End] = SimpleQueue()
        self._wanted: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self._iterator: Iterator[Any] | None = iterator
        self._owns_iterator = owns_iterator
        self._prepare, self._state, self._clock = prepare, state, clock
        self._gradients = torch.is_grad_enabled()  # PyTorch keeps it by thread
        for _ in range(depth):
            self._wanted.put(None)
        self._thread = threading.Thread(target=self._run, name="torchtpu-prefetch", daemon=True)
        self._thread.start()
        _stop_at_exit(self)

    def want_another(self) -> None:
        """A batch is about to be taken: there will be room for one more."""
        self._wanted.put(None)

    @property
    def is_stopped(self) -> bool:
        """Whether nobody takes batches any more."""
        return self._stopped

    def stop(self) -> None:
        """Load no more, soon; does not wait."""
        self._stopped = True
        self._wanted.put(None)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended, after the batch that it is loading now."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def close(self) -> None:
        """Stop, wait, and drop what lies ready."""
        self.stop()
        self.join()
        while not self.ready.empty():
            self.ready.get()
        self.ready.put(End())

    def _run(self) -> None:
        loading.enter_background()
        end = End()
        try:
            with torch.set_grad_enabled(self._gradients):
                while self._is_wanted():
                    batch = self._load()
                    if isinstance(batch, End):
                        end = batch
                        break
                    self.ready.put(batch)
                    del batch  # while this thread waits, the loop alone holds it
        except BaseException as error:  # raised again where the batch would have come
            end = End(error)
        finally:
            self.ready.put(end)
            self._close()
            self._prepare = self._state = None

    def _is_wanted(self) -> bool:
        self._wanted.get()
        return not self._stopped

    def _load(self) -> Batch | End:
        assert self._iterator is not None
        assert self._prepare is not None
        start_s = time.perf_counter()
        try:
            batch = next(self._iterator)
        except StopIteration:
            return End(state=self._state and self._state.read())
        state = self._state and self._state.read()
        moved_from_s = time.perf_counter()
        take = self._prepare(batch)
        self._clock.loaded(start_s, moved_from_s)
        return Batch(take, state)

    def _close(self) -> None:
        """Give up the source. What was made for this loop alone is closed, and so is a generator: its `finally` runs here."""
        iterator, self._iterator = self._iterator, None
        if self._owns_iterator or isinstance(iterator, types.GeneratorType):
            close = getattr(iterator, "close", None)
            if callable(close):
                close()


_running: weakref.WeakSet[Producer] = weakref.WeakSet()


def _stop_at_exit(producer: Producer) -> None:
    _running.add(producer)
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)  # always the newest, so that it comes before JAX and the core put away what the threads use


def _stop_all() -> None:
    """End the threads before the interpreter does, which aborts the process if it finds one in XLA's code.

    A source that blocks is left behind after a while: the thread is a daemon.
    """
    deadline_s = time.monotonic() + _EXIT_WAIT_S
    producers = list(_running)
    for producer in producers:
        producer.stop()
    for producer in producers:
        producer.join(max(deadline_s - time.monotonic(), 0.0))
