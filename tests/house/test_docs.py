"""The generated pages of docs/ are current, and every error has the documentation that its message points to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import generate_coverage, generate_errors
from torchtpu.flags import FLAGS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
OF_USERS = {"train.py", "load.py", "manifest.json"}  # files of a user's, and of an exported program


def _text(page: str) -> str:
    return (ROOT / page).read_text()


def test_errors_page_is_current() -> None:
    assert generate_errors.PAGE.read_text() == generate_errors.render(), "docs/errors.md is not current; `make docs` rewrites it"


def test_coverage_page_is_current() -> None:
    page = generate_coverage.render()
    assert generate_coverage.PAGE.read_text() == page, "docs/coverage.md is not current; `make docs` rewrites it"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    text = _text(page)
    here = [str(path.relative_to(ROOT)) for folder in ("torchtpu", "csrc", "tests", "docs", "benchmarks", "examples", "lint")
            for path in (ROOT / folder).rglob("*.*")] + [path.name for path in ROOT.iterdir()]
    named = set(re.findall(r"[\w/.-]*\w\.(?:py|cpp|h|md|json)\b", text)) - OF_USERS
    assert [name for name in sorted(named) if not any(path == name or path.endswith("/" + name) for path in here)] == []
    assert set(re.findall(r"\bTORCHTPU_[A-Z_]*[A-Z]", text)) <= set(FLAGS)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets


@pytest.mark.parametrize("folder", ["torchtpu", "csrc", "tests"])
def test_every_room_is_explained(folder: str) -> None:
    rooms = {path.name for path in (ROOT / folder).iterdir() if path.is_dir() and any(path.glob("*.*"))} - {"__pycache__"}
    text = _text("ARCHITECTURE.md").partition("## Rooms")[2].partition("##")[0]
    if folder == "tests":
        rooms -= {path.name for path in (ROOT / "torchtpu").iterdir()} | {"record"}  # named like what they test
    assert {room for room in rooms if not re.search(rf"\b{room}\b", text)} == set()


def test_the_first_program_of_the_readme_runs(capsys) -> None:
    program = re.search(r"```python\n(.*?)```", _text("README.md"), re.DOTALL)
    assert program is not None
    exec(program[1], {})
    assert float(capsys.readouterr().out) > 0
