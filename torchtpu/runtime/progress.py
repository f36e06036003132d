"""A line on stderr while something takes long: a compile of minutes is not a hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torchtpu import flags

PATIENCE_S = 5.0  # what ends sooner is not worth a line
_PERIOD_S = 1.0  # between updates on a terminal


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Say what is being done once it takes longer than five seconds; updated in place on a terminal, else said twice.

    A thread says so, because the caller is busy in XLA. It has ended when this returns, so nothing is written afterwards.
    ``TORCHTPU_PROGRESS=0`` silences it.
    """
    if not flags.get("TORCHTPU_PROGRESS"):
        yield
        return
    line = _Line(what)
    thread = threading.Thread(target=line.watch, name="torchtpu-progress", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        line.end(thread, "gave up")
        raise
    line.end(thread, "done")


class _Line:
    def __init__(self, what: str) -> None:
        self._what = what
        self._start_s = time.perf_counter()
        self._ended = threading.Event()
        self._is_shown = False
        self._in_place = False

    def watch(self) -> None:
        """Until the end: wait, then tell."""
        if self._ended.wait(PATIENCE_S):
            return
        self._in_place = sys.stderr.isatty()
        self._is_shown = True
        self._tell("...")
        while self._in_place and not self._ended.wait(_PERIOD_S):
            self._tell("...")

    def end(self, thread: threading.Thread, outcome: str) -> None:
        """Stop the thread, then say how it ended, if anything was said."""
        self._ended.set()
        thread.join()
        if self._is_shown:
            self._tell(f", {outcome}")
            if self._in_place:
                sys.stderr.write("\n")

    def _tell(self, state: str) -> None:
        text = f"torchtpu: {self._what}: {time.perf_counter() - self._start_s:.0f} s{state}"
        sys.stderr.write(f"\r{text}\x1b[K" if self._in_place else f"{text}\n")
        sys.stderr.flush()
