"""The generated pages of docs/ are current, and every error has the documentation that its message points to."""

from __future__ import annotations

from docs import generate_coverage, generate_errors


def test_errors_page_is_current() -> None:
    assert generate_errors.PAGE.read_text() == generate_errors.render(), "docs/errors.md is not current; `make docs` rewrites it"


def test_coverage_page_is_current() -> None:
    page = generate_coverage.render()
    assert generate_coverage.PAGE.read_text() == page, "docs/coverage.md is not current; `make docs` rewrites it"
