"""The names of what may come of a sample, worst first, and the record of one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MEANING = {
    "crash": "the worker died, twice",
    "timeout": "the worker was stopped after --timeout seconds",
    "compile-fail": "--compile: the compiler refused it",
    "fail": "other values, shapes, dtypes or structure than on the CPU",
    "error": "the device raised where the CPU did not",
    "error-missed": "the CPU raised and the device did not",
    "unsupported": "the device said that it cannot",
    "aliasing": "other sharing of memory or other version counters than on the CPU",
    "strides": "other strides than on the CPU",
    "error-type": "the device raised an error of another type than the CPU, or one that is its own fault",
    "pass": "the same as on the CPU",
    "compile-part": "--compile: a part compiles; the rest runs on the CPU, or has a shape that depends on values",
    "compile-pass": "--compile: it compiles",
    "compile-none": "--compile: there is nothing to compute",
    "error-pass": "both raised the same type",
    "no-fallback": "--fallback=error: no accelerator computes it (torchtpu/graph/cpu_only.py)",
    "layout": "not strided, and the device does not handle it",
    "cpu-refuses": "the CPU raised, so there is nothing to compare",
    "cpu-accepts": "an error sample about which the CPU has no complaint",
    "empty": "no samples",
}
FAILURES = tuple(MEANING)[:10]
_MESSAGES = 3  # kept of each variant and outcome
_MESSAGE_LENGTH = 700


def worst(outcomes: Iterable[str]) -> str:
    """The first of them in the order of ``MEANING``."""
    present = set(outcomes)
    return next((outcome for outcome in MEANING if outcome in present), "empty")


@dataclass
class Record:
    """What came of one task: counts by variant and outcome, the first messages, and what it took."""

    options: str
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    messages: list[tuple[str, str, str]] = field(default_factory=list)  # variant, outcome, text
    samples: int = 0
    random: int = 0
    gradients: int = 0
    refereed: int = 0  # passed because float64 says that we are not worse than the CPU
    fallbacks: dict[str, int] = field(default_factory=dict)
    compiles: int = 0
    seconds: float = 0.0
    memory_bytes: int = 0  # of the worker, afterwards
    retried: bool = False

    def add(self, variant: str, outcome: str, text: str = "") -> None:
        """Count one sample, and keep what was said about it if it is among the first of its kind."""
        self.counts.setdefault(variant, Counter())[outcome] += 1
        if text and sum(kept[:2] == (variant, outcome) for kept in self.messages) < _MESSAGES:
            self.messages.append((variant, outcome, text[:_MESSAGE_LENGTH]))

    @property
    def outcomes(self) -> Counter[str]:
        """Samples by outcome."""
        return sum(self.counts.values(), Counter())

    @property
    def status(self) -> str:
        """The worst outcome."""
        return worst(self.outcomes)

    def failures(self) -> list[tuple[str, str]]:
        """Variants and outcomes that are failures."""
        return [(variant, outcome) for variant, counts in self.counts.items() for outcome in counts if outcome in FAILURES]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Record:
        """From JSON."""
        record = cls(**fields)
        record.counts = {variant: Counter(counts) for variant, counts in record.counts.items()}
        record.messages = [(variant, outcome, text) for variant, outcome, text in record.messages]
        return record
