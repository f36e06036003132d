"""The command line of a generated page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def main(page: Path, render: Callable[[], str], description: str | None) -> int:
    """Write the page or, with ``--check``, say whether it is current: 1 if it is not."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the page is not current")
    if parser.parse_args().check:
        current = page.exists() and page.read_text() == render()
        print(f"docs/{page.name} is current" if current else f"docs/{page.name} is not current: make docs")
        return 0 if current else 1
    page.write_text(render())
    return 0
