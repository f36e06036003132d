"""The generated pages of docs/ are current, and every error has the documentation that its message points to."""

from __future__ import annotations

import runpy
from pathlib import Path

from docs import generate_coverage

DOCS = Path(__file__).parents[2] / "docs"


def test_errors_page_is_current() -> None:
    render = runpy.run_path(str(DOCS / "generate_errors.py"))["render"]
    assert (DOCS / "errors.md").read_text() == render(), "docs/errors.md is not current; `make docs` rewrites it"


def test_coverage_page_is_current() -> None:
    page = generate_coverage.render()
    assert generate_coverage.PAGE.read_text() == page, "docs/coverage.md is not current; `make docs` rewrites it"
