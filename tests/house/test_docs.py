"""The generated pages of docs/ are current, and every error has the documentation that its message points to."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_errors_page_is_current() -> None:
    render = runpy.run_path(str(DOCS / "generate_errors.py"))["render"]
    assert (DOCS / "errors.md").read_text() == render(), "docs/errors.md is not current; `make docs` rewrites it"
