"""Who waited for whom: the program for its data, or the data for the program."""

from __future__ import annotations

import time
from dataclasses import dataclass

from torchtpu.runtime import loading

_SLOW = 0.05  # of the time, spent waiting for data


@dataclass
class LoadingReport:
    """One iteration over prefetched batches; ``str()`` is the text for people. Times are seconds.

    Attributes:
        batches: handed over so far.
        elapsed_s: from the first batch to the last.
        first_wait_s: until the first batch was there.
        waited_s: of ``elapsed_s``, the time in which the loop waited for a batch.
        starved_s: of ``waited_s``, the waits at whose end the device had nothing left to do. A loop may be steps ahead of its
            device; then it waits and nothing is lost. On devices other than tpu the same as ``waited_s``.
        loaded: batches that the source has given.
        loading_s: what the source took for them.
        moving_s: what converting, padding and moving them took.
    """

    batches: int = 0
    elapsed_s: float = 0.0
    first_wait_s: float = 0.0
    waited_s: float = 0.0
    starved_s: float = 0.0
    loaded: int = 0
    loading_s: float = 0.0
    moving_s: float = 0.0

    @property
    def waiting(self) -> float:
        """The share of the time that the loop waited for data, 0 to 1; the first batch left out."""
        return self.waited_s / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def starved(self) -> float:
        """The share of the time that the device waited for data, 0 to 1: at most so much faster it could be."""
        return self.starved_s / self.elapsed_s if self.elapsed_s else 0.0

    def __str__(self) -> str:
        if not self.loaded:
            return "prefetch: no batch yet."
        step_s = self.elapsed_s / max(self.batches - 1, 1)
        advice = " Loading is what takes the time: give the source more workers." if self.starved > _SLOW else ""
        return (
            f"prefetch: {self.batches} batches in {self.elapsed_s:.1f} s, waited {self.waited_s:.1f} s of it for data "
            f"({self.waiting:.0%}; the device ran dry in {self.starved:.0%}), and {self.first_wait_s:.1f} s for the first. A batch "
            f"takes {self.loading_s / self.loaded * 1e3:.1f} ms to load and {self.moving_s / self.loaded * 1e3:.1f} ms to move, "
            f"a step {step_s * 1e3:.1f} ms.{advice}")


class Clock:
    """Fills in a report, one hand-over after the other."""

    def __init__(self) -> None:
        self.report = LoadingReport()
        self._first_s = 0.0

    def handed_over(self, start_s: float, device_type: str) -> None:
        """The loop has asked for a batch at ``start_s``, and got it now."""
        report = self.report
        is_first = report.batches == 0
        wait_s, starved_s = loading.note_wait(start_s, is_first, is_tpu=device_type == "tpu")
        if is_first:
            report.first_wait_s, self._first_s = wait_s, start_s + wait_s
        else:
            report.waited_s += wait_s
            report.starved_s += starved_s
            report.elapsed_s = start_s + wait_s - self._first_s
        report.batches += 1

    def loaded(self, start_s: float, moved_from_s: float) -> None:
        """A batch has been loaded from ``start_s`` on, and moved since ``moved_from_s``."""
        self.report.loaded += 1
        self.report.loading_s += moved_from_s - start_s
        self.report.moving_s += time.perf_counter() - moved_from_s
