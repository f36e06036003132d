"""What every benchmark prints: a Markdown table, and the versions it was measured with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with its columns aligned, numbers to the right."""
    table = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return f"| {' | '.join(cells)} |"

    rule = f"|{'-' * (widths[0] + 2)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|"
    return "\n".join([line(table[0]), rule, *(line(row) for row in table[1:])])


def environment() -> str:
    """Versions and hardware, one line each."""
    versions = []
    for name in ("torchtpu", "torch", "jax", "jaxlib", "libtpu", "numpy", "transformers"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0))
    return "\n".join([
        f"- versions: {', '.join(versions)}, Python {platform.python_version()}",
        f"- machine: {_cpu_name()}, {cores} cores, {platform.machine()}; "
        f"TORCHTPU_PLATFORM={os.environ.get('TORCHTPU_PLATFORM', 'unset')}",
        f"- load average at the end: {os.getloadavg()[0]:.1f}",
    ])


def alternating(first: Callable[[], float], second: Callable[[], float], pairs: int) -> tuple[float, float, float]:
    """Medians of two measurements taken in turn, and the median of their ratios pair by pair (first / second)."""
    measured = [(first(), second()) for _ in range(pairs)]
    return (statistics.median(a for a, _ in measured), statistics.median(b for _, b in measured),
            statistics.median(a / b for a, b in measured))


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown CPU"
