"""Making a failing program short: lines are left out while it goes on failing."""

from __future__ import annotations

from tests.fuzz.compare import Disagreement, check


def shrink(found: Disagreement) -> Disagreement:
    """The shortest program found that disagrees in the same mode."""
    size = len(found.program.lines) // 2
    while size:
        start = 0
        while start < len(found.program.lines):
            shorter = _failure(found, start, start + size)
            found = shorter or found
            start += 0 if shorter else size
        size //= 2
    return found


def _failure(found: Disagreement, start: int, stop: int) -> Disagreement | None:
    try:
        check(found.program.without(start, stop), (found.mode,))
    except Disagreement as shorter:
        return shorter
    return None
