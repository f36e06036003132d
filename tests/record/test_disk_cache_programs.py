"""A second run of the same script neither traces nor compiles; a damaged entry costs one compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchtpu.runtime import cache_entry, disk_cache

SCRIPT = """
import json, warnings
import torch
from torch import nn
import torchtpu.inspect
from torchtpu.runtime import executables

traced = []
original = executables.lowered
executables.lowered = lambda *a: traced.append(1) or original(*a)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 3)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
told = []
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for step in range(4):
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 32).reshape(8, 4).to("tpu")
        loss = nn.functional.cross_entropy(model(x), torch.arange(8, device="tpu") % 3)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
counters = torchtpu.inspect.counters()
memory = torchtpu.inspect.last_program_memory()
print(json.dumps({
    "losses": losses, "compiles": counters["compiles"], "disk_hits": counters["disk_hits"], "traced": len(traced),
    "programs": sorted(r.key for r in torchtpu.inspect.programs()), "warnings": [str(w.message) for w in told], "memory": memory}))
"""


def run(directory: Path, **environment: str) -> dict[str, Any]:
    env = {**os.environ, "TORCHTPU_CACHE_DIR": str(directory), **environment}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A directory that one run has filled, and what that run said."""
    directory = tmp_path_factory.mktemp("programs")
    return directory, run(directory)


def test_the_second_run_compiles_nothing(cold):
    directory, first = cold
    second = run(directory)
    assert first["compiles"] == len(first["programs"]) > 0 and first["disk_hits"] == 0
    assert second["compiles"] == 0 and second["traced"] == 0
    assert second["disk_hits"] == len(second["programs"])
    assert second["programs"] == first["programs"]
    assert second["losses"] == first["losses"]
    assert second["memory"] == first["memory"]
    assert first["warnings"] == second["warnings"] == []


def test_a_damaged_entry_is_compiled_again(cold):
    directory, first = cold
    path = max(directory.glob("*.program"), key=lambda p: p.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = run(directory)
    assert again["compiles"] == 1
    assert again["disk_hits"] == len(first["programs"]) - 1
    assert again["losses"] == first["losses"]
    assert len(again["warnings"]) == 1
    assert path.stat().st_size > len(content) // 2 and path.read_bytes() != bytes(content)  # and was stored anew


def test_without_a_cache(tmp_path):
    off = run(tmp_path / "unused", TORCHTPU_CACHE="0")
    assert off["compiles"] > 0
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("payload", [b"no pickle", b"cno_such_module\nThing\n."], ids=["garbage", "of another build"])
def test_a_payload_that_cannot_be_read_is_compiled_again(cold, payload):
    directory, first = cold
    path = max(directory.glob("*.program"), key=lambda p: p.stat().st_size)
    with path.open("rb") as stream:
        key, header, _ = cache_entry.read_entry(stream, path.stat().st_size)
    assert header["num_nodes"] > 1 and header["compile_s"] > 0 and header["line"].startswith("<string>:")
    disk_cache.DiskCache(directory, 1 << 30).put(key, header, payload)
    again = run(directory)
    assert again["compiles"] == 1 and again["losses"] == first["losses"]
    assert len(again["warnings"]) == 1 and "could not be loaded and is compiled again" in again["warnings"][0]
