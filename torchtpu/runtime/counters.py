"""What the runtime counts, and the log of programs that explanations are made from."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchtpu.graph.difference import Difference


@dataclass
class ProgramRecord:
    """One program that was compiled or loaded. Times are seconds, memory is bytes of one launch."""

    key: str
    reason: str  # of the flush
    num_nodes: int
    fills: bool
    source: str  # "compiled" or "disk"
    compile_s: float
    memory: dict[str, int]
    line: str  # the user's, at which it ended
    difference: Difference | None  # from the nearest known program; None where it was loaded
    num_kept_gradients: int = 0  # of an optimizer's step that it holds: they became outputs
    kept_gradients_bytes: int = 0
    num_launches: int = 0
    end_s: float = field(default_factory=time.perf_counter)  # when it was there


@dataclass
class SyncRecord:
    """Reads by the host at one user line."""

    whats: Counter[str] = field(default_factory=Counter)  # "item", "copy to the host" or an operator
    wait_s: float = 0.0  # for the device, compiling left out


@dataclass
class FallbackRecord:
    """Calls of one operator on the CPU from one user line."""

    num_calls: int = 0
    cpu_s: float = 0.0  # reading its arguments, computing, and writing its results; compiling left out


@dataclass
class LoadingRecord:
    """Batches that a loop at one user line waited for, the first of each iteration left out."""

    num_batches: int = 0
    wait_s: float = 0.0  # of the host
    starved_s: float = 0.0  # of it, the waits at whose end the device had nothing left to do


@dataclass
class Counters:
    """Counts since the start of the process or the last reset."""

    compiles: int = 0
    compile_s: float = 0.0
    disk_hits: int = 0
    launches: int = 0
    fallbacks: defaultdict[tuple[str, str], FallbackRecord] = field(default_factory=lambda: defaultdict(FallbackRecord))
    syncs: defaultdict[str, SyncRecord] = field(default_factory=lambda: defaultdict(SyncRecord))
    loading: defaultdict[str, LoadingRecord] = field(default_factory=lambda: defaultdict(LoadingRecord))
    unpadded: Counter[str] = field(default_factory=Counter)  # compiled graphs that keep an exact size, by the operator
    programs: deque[ProgramRecord] = field(default_factory=lambda: deque(maxlen=1024))
    start_s: float = field(default_factory=time.perf_counter)

    def fallbacks_by_op(self) -> dict[str, int]:
        """Calls that ran on the CPU, by operator."""
        result: Counter[str] = Counter()
        for (op, _), record in list(self.fallbacks.items()):
            result[op] += record.num_calls
        return dict(result)

    def as_dict(self) -> dict[str, Any]:
        """The numbers alone."""
        return {
            "compiles": self.compiles, "compile_s": self.compile_s, "disk_hits": self.disk_hits, "launches": self.launches,
            "fallbacks": self.fallbacks_by_op(), "syncs": {line: record.whats.total() for line, record in list(self.syncs.items())},
            "loading": {line: record.wait_s for line, record in list(self.loading.items())}, "unpadded": dict(self.unpadded),
        }


counters = Counters()


def reset() -> None:
    """Start counting anew; the log of programs is kept."""
    programs = counters.programs
    counters.__init__()  # type: ignore[misc]
    counters.programs = programs
