"""Nothing in the repository knows the machine it was written on: no absolute paths of one, no private hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lint.finding import ROOT, Finding, files

PATTERN = re.compile(
    r"(?<![\w./~-])/(?:home|root|work|tmp|opt|mnt|srv|Users|workspace)/[\w.]"
    r"|\b(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b"
)
SUFFIXES = (".py", ".cpp", ".h", ".md", ".toml", ".yml", ".yaml", ".cfg", ".ipynb")


def check() -> Iterator[Finding]:
    """Every text file of the rooms, and those beside them."""
    beside = [p for p in sorted(ROOT.iterdir()) if p.suffix in SUFFIXES or p.name == "Makefile"]
    for path in (*beside, *files(*SUFFIXES)):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := PATTERN.search(line):
                yield Finding(path, number, f"{match[0]!r} names one machine")
