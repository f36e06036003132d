"""Saving needs two small packages that only the extras ``export`` and ``dev`` install."""

from __future__ import annotations

import importlib.util

import pytest

MISSING = [name for name in ("safetensors", "flatbuffers") if importlib.util.find_spec(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that save where that cannot work."""
    for item in items:
        if MISSING and "tests/export/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=f"{' and '.join(MISSING)} not installed"))
