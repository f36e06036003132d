"""The programs made last, which a new one is compared with."""

from __future__ import annotations

from collections import deque

from torchtpu.graph import difference as differences
from torchtpu.graph.difference import Difference, Known
from torchtpu.graph.program import RecordedProgram

_MAX_PROGRAMS = 64
_MAX_NODES = 1 << 16  # in all of them; each is a few hundred bytes

_known: deque[Known] = deque(maxlen=_MAX_PROGRAMS)


def add(program: RecordedProgram, line: str) -> None:
    """Remember a program, and forget the oldest where they get too many or too large."""
    _known.append(Known.of(program, line))
    while len(_known) > 1 and sum(len(known.ops) for known in list(_known)) > _MAX_NODES:
        _known.popleft()


def difference(program: RecordedProgram, line: str) -> Difference:
    """Why the program is none of those remembered."""
    return differences.difference(Known.of(program, line), list(_known))


def forget() -> None:
    """Know nothing."""
    _known.clear()
