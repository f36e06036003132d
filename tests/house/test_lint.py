"""Each lint accepts what it should and refuses what it is for."""

from __future__ import annotations

import pytest

from lint.imports import _complaint
from lint.portable import PATTERN


@pytest.mark.parametrize(
    ("room", "name", "allowed"),
    [
        ("rules", "jax.numpy", True),
        ("rules", "torchtpu.errors", True),
        ("rules", "torch", False),
        ("rules", "torchtpu.graph.views", False),
        ("errors", "torchtpu._messages", True),
        ("errors", "torchtpu.rules", False),
        ("graph", "torchtpu.rules.registry", True),
        ("graph", "torchtpu._C", False),
        ("runtime", "torchtpu._C", True),
        ("device", "torchtpu.runtime.memory", True),
        ("runtime", "torchtpu.device", False),
        ("runtime", "torchtpu", False),
        ("inspect", "torchtpu.device", True),
        ("migrate", "libcst.matchers", True),
        ("migrate", "torchtpu.errors", False),
    ],
)
def test_import_direction(room: str, name: str, allowed: bool) -> None:
    assert (_complaint(room, name) is None) == allowed


@pytest.mark.parametrize("text", ["open('/" + "home/me/x')", "ssh 192." + "168.0.4"])
def test_machine_names_are_found(text: str) -> None:
    assert PATTERN.search(text)


@pytest.mark.parametrize("text", ["#!/usr/bin/env bash", "/proc/cpuinfo", "libtpu 0.0.42.1", "tests/opt/x"])
def test_portable_text_is_left_alone(text: str) -> None:
    assert not PATTERN.search(text)
