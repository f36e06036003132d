"""Every rule compiles for a real chip: ahead of time, for a topology that need not exist here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In a process of its own: a compiler that aborts must not take the other tests along.
SCRIPT = """
import jax
import numpy as np
from jax.experimental import topologies

import torch  # noqa: F401 - registers the device
from tests.ops.direct import Direct
from tests.ops.row import Make
from tests.ops.tables import ROWS
from torchtpu import dtypes

chip = jax.sharding.SingleDeviceSharding(topologies.get_topology_desc("v5e:2x2", platform="tpu").devices[0])


def abstract(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=chip)


for row in ROWS:
    direct = Direct(row, next(iter(row.samples(Make(row.dtypes[0])))))
    if direct.answer.kind != "node":
        continue
    print(row.key, flush=True)
    lowering = direct.answer.lowering
    arrays = [abstract((t.untyped_storage().nbytes() // t.itemsize,), dtypes.to_numpy(t.dtype)) for t in direct.tensors]
    numbers = [abstract((), dtype) for dtype in lowering.slot_dtypes]
    words = abstract((direct.answer.num_draws, 4), np.uint32) if direct.answer.num_draws else None
    with jax.enable_x64(True):
        function = jax.jit(lambda a, n, w: lowering(a, n, w), out_shardings=chip)
        function.trace(arrays, numbers, words).lower(lowering_platforms=("tpu",)).compile()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu, which holds the compiler, is not installed")
def test_every_rule_compiles_for_a_chip() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, timeout=600, check=False, capture_output=True, text=True)
    last = done.stdout.strip().rpartition("\n")[2]
    assert done.returncode == 0, f"{last}: {done.stderr[-2000:]}"
