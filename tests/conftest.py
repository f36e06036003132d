"""Fixtures of every test."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

# Before anything imports torch: the device is emulated, silent fallbacks fail, and no cache outlives the run.
os.environ["TORCHTPU_PLATFORM"] = "cpu"
os.environ["TORCHTPU_FALLBACK"] = "error"
# Half of the tests' time is spent in LLVM, on code that runs once: it need not be good code. XLA_FLAGS="" has it as users have it.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false")
_cache = tempfile.TemporaryDirectory(prefix="torchtpu-tests-", ignore_cleanup_errors=True)
os.environ["TORCHTPU_CACHE_DIR"] = _cache.name

import pytest  # noqa: E402 - it may load plug-ins that import torch

GOLDENS = Path(__file__).parent / "golden"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a golden file, so that ``make golden`` runs them alone."""
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker("golden")


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with ``tests/golden/<name>.expected``; REWRITE_GOLDENS=1 writes it instead."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / f"{name}.expected"
        if os.environ.get("REWRITE_GOLDENS") == "1":
            path.write_text(text)
            return
        expected = path.read_text() if path.exists() else ""
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), "expected", "now", lineterm="")
            pytest.fail("\n".join([f"{path.name} is not current; `make golden` rewrites it", *lines]), pytrace=False)

    return check
