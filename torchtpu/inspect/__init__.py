"""Looking inside: counters, the programs that were made, why they were made again, and the CPU beside the device."""

from __future__ import annotations

from typing import Any

from torchtpu import _C
from torchtpu.inspect import dynamo as _dynamo
from torchtpu.inspect.comparison import compare
from torchtpu.inspect.findings import explain
from torchtpu.runtime import counters as _counters


def counters() -> dict[str, Any]:
    """Counts since the start of the process or ``reset_counters``.

    ``records`` operators recorded; ``flushes`` programs run, by reason; ``compiles`` and ``compile_s`` seconds; ``disk_hits``;
    ``launches``; ``fallbacks`` by operator; ``syncs`` reads by the host, by user line; ``loading`` seconds that loops waited for
    their loaders, by user line (a plain DataLoader, or ``torchtpu.data.prefetch``); ``unpadded`` compiled graphs with a size
    that stays exact, by the operator that does not bear padding; ``bytes_to_device``, ``bytes_to_host``; ``signatures`` and
    ``programs`` known.
    """
    return _C.counters() | _counters.counters.as_dict()


def reset_counters() -> None:
    """Start counting anew."""
    _C.reset_counters()
    _counters.reset()
    _dynamo.forget_breaks()


def programs() -> list[_counters.ProgramRecord]:
    """The programs that were compiled or loaded, the newest last."""
    return list(_counters.counters.programs)


def last_program_memory() -> dict[str, int]:
    """Argument, output, temp and alias bytes of the program that was compiled or loaded last (fills left out)."""
    from torchtpu.runtime import executables

    return dict(executables.last_executable.memory) if executables.last_executable else {}


__all__ = ["compare", "counters", "explain", "last_program_memory", "programs", "reset_counters"]
