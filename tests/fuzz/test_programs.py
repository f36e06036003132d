"""Random programs do the same on the CPU and on the device, in every mode."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.compare import Disagreement, check
from tests.fuzz.program import Program
from tests.fuzz.shrink import shrink
from tests.fuzz.writer import programs

SEED = int(os.environ.get("FUZZ_SEED", random.randrange(2**31)))
NUM_PROGRAMS = int(os.environ.get("FUZZ_PROGRAMS", "2000"))
# Without hypothesis's own shrinking: leaving out lines is faster, and what remains is the program that failed.
_SETTINGS: dict[str, Any] = {
    "deadline": None, "database": None, "phases": [Phase.generate], "suppress_health_check": list(HealthCheck),
}

pytestmark = pytest.mark.filterwarnings("ignore")


def agree(program: Program) -> None:
    """Fail with the shortest script that shows the disagreement."""
    try:
        check(program)
    except Disagreement as found:
        raise shrink(found) from None


@settings(max_examples=100, derandomize=True, **_SETTINGS)
@given(programs())
def test_programs(program: Program) -> None:
    """Always the same hundred."""
    agree(program)


@pytest.mark.slow
@settings(max_examples=NUM_PROGRAMS, **_SETTINGS)
@seed(SEED)
@given(programs(max_lines=24))
def test_many_programs(program: Program) -> None:
    """Others every time; FUZZ_SEED repeats a run, FUZZ_PROGRAMS says how many."""
    print(f"FUZZ_SEED={SEED}")
    agree(program)
