"""What a lint reports, and the files that it looks at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("torchtpu", "csrc", "tests", "benchmarks", "examples", "docs", "lint")


@dataclass(frozen=True)
class Finding:
    """One line of the report; only a fatal one fails the run."""

    path: Path
    line: int
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        kind = "error" if self.fatal else "warning"
        return f"{self.path.relative_to(ROOT)}:{self.line}: {kind}: {self.message}"


def files(*suffixes: str, rooms: tuple[str, ...] = ROOMS) -> Iterator[Path]:
    """Files of the project with one of these suffixes."""
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path


def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(), filename=str(path))
