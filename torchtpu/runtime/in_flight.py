"""Programs that were launched and may still run, and the events that mark points among them."""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax

from torchtpu.errors import ExecutionError

_MAX_IN_FLIGHT = 32  # launches that may be ahead of the device


class Token(Protocol):
    """What tells the end of a launch or of an upload: a small array, or the like of one."""

    def is_ready(self) -> bool:
        """Whether it has ended."""
        ...

    def block_until_ready(self) -> Any:
        """Wait until it has ended."""


_launched: defaultdict[int, deque[Token]] = defaultdict(deque)
last_outputs: dict[int, list[jax.Array]] = {}


def note_launch(device: int, token: Token) -> None:
    """Remember a launch, or an upload, by its token; wait for the oldest if too many are under way."""
    running = _launched[device]
    running.append(token)
    if len(running) > _MAX_IN_FLIGHT:
        _wait([running[0]])
    _forget_finished(running)


def _forget_finished(running: deque[Token]) -> None:
    """Drop tokens from the front. Only those that are done: another thread may be waiting for the rest."""
    try:
        while running[0].is_ready():
            running.popleft()
    except IndexError:
        """No more are left; another thread may have taken the last one."""


def is_idle(device: int) -> bool:
    """Whether everything launched on the device has finished."""
    return all(token.is_ready() for token in list(_launched[device]))


def wait(device: int) -> None:
    """Wait for everything launched on the device.

    Raises:
        ExecutionError: a program failed.
    """
    running = _launched[device]
    try:
        _wait(list(running))
    finally:
        _forget_finished(running)


def _wait(tokens: Sequence[Token]) -> None:
    """Wait for all of them, then raise what the first that failed has to say."""
    first: jax.errors.JaxRuntimeError | None = None
    for token in tokens:
        try:
            token.block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            first = first or error
    if first is not None:
        raise ExecutionError(device="the device", why=str(first).strip().split("\n")[0]) from first


@dataclass
class Event:
    """A point in the order of launches. ``time_s`` is the moment at which the host saw everything before it finished."""

    tokens: list[Token]
    is_timed: bool = False
    finished: threading.Event = field(default_factory=threading.Event)
    time_s: float = 0.0
    error: Exception | None = None

    def query(self) -> bool:
        """Whether everything before the event has finished."""
        return self.finished.is_set() or (not self.is_timed and all(token.is_ready() for token in self.tokens))


_ids = itertools.count(1)
_events: dict[int, Event] = {}
_to_watch: queue.SimpleQueue[Event | None] = queue.SimpleQueue()  # None: stop
_watcher: threading.Thread | None = None


def record_event(event: int, device: int, timed: bool) -> int:
    """Mark the present point; returns the event's number (a new one for 0)."""
    mark = Event(list(_launched[device]), is_timed=timed)
    if timed:
        _watch(mark)
    number = event or next(_ids)
    _events[number] = mark
    return number


def _watch(event: Event) -> None:
    global _watcher
    if _watcher is None:
        _watcher = threading.Thread(target=_watch_events, name="torchtpu-events", daemon=True)
        _watcher.start()
        atexit.register(_stop_watching)
    _to_watch.put(event)


def _stop_watching() -> None:
    """End the thread before the interpreter does, which would abort the process if it found the thread in XLA's code."""
    assert _watcher is not None
    _to_watch.put(None)
    _watcher.join()


def _watch_events() -> None:
    while (event := _to_watch.get()) is not None:
        try:
            _wait(event.tokens)
        except ExecutionError as error:
            event.error = error
        event.time_s = time.perf_counter()
        event.tokens = []
        event.finished.set()


def query_event(number: int) -> bool:
    """Whether everything before the event has finished."""
    return _events[number].query()


def synchronize_event(number: int) -> None:
    """Wait for everything before the event.

    Raises:
        ExecutionError: a program before the event failed.
    """
    event = _events[number]
    if event.is_timed:
        event.finished.wait()
        if event.error is not None:
            raise event.error
    else:
        _wait(event.tokens)


def elapsed_ms(first: int, second: int) -> float:
    """Milliseconds between the completion of two timed events, as the host saw them."""
    synchronize_event(first)
    synchronize_event(second)
    return (_events[second].time_s - _events[first].time_s) * 1e3


def destroy_event(number: int) -> None:
    """Forget an event."""
    _events.pop(number, None)


def arrays_of(device: int) -> list[Any]:
    """Outputs of the last launch on a device (debug mode looks at them)."""
    return last_outputs.get(device, [])
