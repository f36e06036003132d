"""All rows, from the files of ``table``."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.ops.row import Row

FAMILIES = sorted(path.stem for path in (Path(__file__).parent / "table").glob("*.py"))
ROWS: list[Row] = [row for family in FAMILIES for row in importlib.import_module(f"tests.ops.table.{family}").ROWS]
