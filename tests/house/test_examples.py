"""The programs of ``examples/`` end well, however short the training."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHORTEST = {"digits_cnn": {"epochs": 1}, "digits_vit": {"steps": 2}, "gpt_text": {"steps": 2, "tokens": 2}}


def test_all_are_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHORTEST)


@pytest.mark.parametrize("name", SHORTEST)
def test_short_training(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    said: list[str] = []
    with torch.random.fork_rng(devices=()):
        result = example.train("cpu", **SHORTEST[name], log=said.append)
    assert math.isfinite(result["loss"])
    assert result["step_ms"] > 0
    assert said[0].startswith(f"step {min(example.READ_EVERY, result['steps']):4d}  loss ")
