"""The report of ``torchtpu.inspect.explain()``: findings by user line, the costliest line first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_MAX_DETAILS = 5  # lines shown of one finding; all of them are in as_dict()


@dataclass(frozen=True)
class Finding:
    """One thing that cost time or memory at one user line.

    Attributes:
        kind: "compiles", "reads", "fallback", "data", "gradients", "boundary", "graph break" or "guards".
        line: ``file:line`` of the user's code.
        lost_s: seconds; 0 where the cost is memory, or is not known.
        text: what happened.
        suggestion: the one thing to try.
        details: more of the same, such as each compile with its difference.
    """

    kind: str
    line: str
    lost_s: float
    text: str
    suggestion: str
    details: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """As shown below its user line."""
        shown = [f"     {detail}" for detail in self.details[:_MAX_DETAILS]]
        if len(self.details) > _MAX_DETAILS:
            shown.append(f"     and {len(self.details) - _MAX_DETAILS} more")
        return [f"   {self.text}", *shown, f"     -> {self.suggestion}"]


@dataclass(frozen=True)
class Line:
    """Everything counted at one user line, whether or not it is a finding. Times are seconds.

    Attributes:
        num_programs: programs that ended here, by the reason that ended them.
        num_launches: how often these ran, by the same reason.
        compile_s: spent in compiling them.
        reads: by the host, by what read.
        wait_s: spent waiting in these reads.
        fallbacks: calls on the CPU, by operator.
        fallback_s: spent in these.
    """

    num_programs: dict[str, int] = field(default_factory=dict)
    num_launches: dict[str, int] = field(default_factory=dict)
    compile_s: float = 0.0
    reads: dict[str, int] = field(default_factory=dict)
    wait_s: float = 0.0
    fallbacks: dict[str, int] = field(default_factory=dict)
    fallback_s: float = 0.0


@dataclass(frozen=True)
class Report:
    """What was found; ``str()`` is the text for people, ``as_dict()`` is for machines.

    Attributes:
        elapsed_s: since the start of the process or the last ``reset_counters``.
        totals: the same counts over all lines.
        findings: the costliest first.
        lines: all that was counted, by user line.
    """

    elapsed_s: float
    totals: dict[str, Any]
    findings: tuple[Finding, ...]
    lines: dict[str, Line]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries, lists, strings and numbers."""
        return asdict(self)

    def __str__(self) -> str:
        """One line if there is nothing to improve."""
        if not self.findings:
            return f"torchtpu: nothing to improve in {self.elapsed_s:.1f} s: {self._summary()}."
        parts = [f"torchtpu: {self.elapsed_s:.1f} s, {self._lost(self.findings)} of it in what follows: {self._summary()}."]
        by_line: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_line.setdefault(finding.line, []).append(finding)
        for number, (line, found) in enumerate(sorted(by_line.items(), key=lambda item: -_lost_s(item[1])), 1):
            parts += ["", f"{number}. {line}  {self._lost(found)}{self._ended(line)}"]
            parts += [text for finding in found for text in finding.lines()]
        return "\n".join(parts)

    def _summary(self) -> str:
        t = self.totals
        return (f"{_counted(t['compiles'], 'program')} compiled ({t['compile_s']:.1f} s), {t['disk_hits']} loaded from disk, "
                f"{_counted(t['launches'], 'launch', 'es')}, {_counted(t['reads'], 'read')} by the host "
                f"({t['wait_s']:.1f} s waiting), {_counted(t['fallbacks'], 'fallback')}")

    def _ended(self, line: str) -> str:
        launches = self.lines.get(line, Line()).num_launches
        return "" if not launches else "; programs end here: " + ", ".join(f"{r} ({n}x)" for r, n in launches.items())

    @staticmethod
    def _lost(found: Sequence[Finding]) -> str:
        return f"{_lost_s(found):.2f} s"


def _counted(count: int, noun: str, ending: str = "s") -> str:
    return f"{count} {noun}{ending if count != 1 else ''}"


def _lost_s(found: Sequence[Finding]) -> float:
    return sum(finding.lost_s for finding in found)
