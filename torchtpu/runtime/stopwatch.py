"""How long the host waited, and for whom: the time of reads and of fallbacks, by user line."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from torchtpu.runtime.counters import counters


@dataclass(frozen=True)
class _Fallback:
    op: str
    line: str
    start_s: float
    compile_s: float  # counted until then


class Stopwatch(threading.local):
    """One a thread. A read is noted first and waited for later, once what it needs has been launched."""

    def __init__(self) -> None:
        self._line = ""
        self._fallbacks: list[_Fallback] = []  # they nest

    def note_read(self, line: str, what: str) -> None:
        """The host is about to read at this line."""
        self._line = line
        counters.syncs[line].whats[what] += 1

    def end_wait(self, start_s: float) -> None:
        """The read that was noted last has its value, and waited for it since then; within a fallback that is part of it."""
        if not self._fallbacks:
            counters.syncs[self._line].wait_s += time.perf_counter() - start_s

    def begin_fallback(self, op: str, line: str) -> None:
        """The operator runs on the CPU from here on."""
        counters.fallbacks[op, line].num_calls += 1
        self._fallbacks.append(_Fallback(op, line, time.perf_counter(), counters.compile_s))

    def end_fallback(self) -> None:
        """It has run, well or badly."""
        fallback = self._fallbacks.pop()
        compiling = counters.compile_s - fallback.compile_s
        elapsed = time.perf_counter() - fallback.start_s
        counters.fallbacks[fallback.op, fallback.line].cpu_s += max(elapsed - compiling, 0.0)
