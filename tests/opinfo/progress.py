"""How far a run is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_S = 15


class Meter:
    """Counts tasks of a known total."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.failed = total, 0, 0
        self._start = self._told = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
                console=Console(stderr=True))
            self._bar.add_task("", total=total)

    def __enter__(self) -> Meter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, name: str, failed: bool) -> None:
        """One task more is done."""
        self.done += 1
        self.failed += failed
        if self._bar:
            self._bar.update(self._bar.task_ids[0], advance=1, description=f"{self.failed} failing, {name}")
        elif time.monotonic() - self._told > _LINE_S or self.done == self.total:
            self._told = time.monotonic()
            elapsed = self._told - self._start
            left = elapsed / self.done * (self.total - self.done)
            print(
                f"[{self.done}/{self.total}] {self.failed} failing, {elapsed:.0f} s gone, {left:.0f} s to go, {name}",
                file=sys.stderr, flush=True)
