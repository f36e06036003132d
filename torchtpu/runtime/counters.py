"""What the runtime counts, and the log of programs that explanations are made from."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ProgramRecord:
    """One program that was compiled or loaded."""

    key: str
    reason: str  # of the flush
    num_nodes: int
    fills: bool
    source: str  # "compiled" or "disk"
    compile_s: float
    memory: dict[str, int]


@dataclass
class Counters:
    """Counts since the start of the process or the last reset."""

    compiles: int = 0
    compile_s: float = 0.0
    disk_hits: int = 0
    launches: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    syncs: Counter[str] = field(default_factory=Counter)
    unpadded: Counter[str] = field(default_factory=Counter)  # compiled graphs that keep an exact size, by the operator
    programs: deque[ProgramRecord] = field(default_factory=lambda: deque(maxlen=1024))

    def as_dict(self) -> dict[str, Any]:
        """The numbers alone."""
        return {
            "compiles": self.compiles, "compile_s": self.compile_s, "disk_hits": self.disk_hits, "launches": self.launches,
            "fallbacks": dict(self.fallbacks), "syncs": dict(self.syncs), "unpadded": dict(self.unpadded),
        }


counters = Counters()


def reset() -> None:
    """Start counting anew; the log of programs is kept."""
    programs = counters.programs
    counters.__init__()  # type: ignore[misc]
    counters.programs = programs
