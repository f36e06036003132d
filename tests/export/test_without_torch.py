"""A saved program runs in a process in which PyTorch and torchtpu cannot be imported, and gives PyTorch's numbers."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchtpu.export

BLOCKED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchtpu"):
            raise ImportError(f"{name} may not be imported here")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, DIRECTORY)
"""

THROUGH_LOADER = BLOCKED + """
import json
import numpy as np
from load import load

given = np.load("given.npz")
program = load(DIRECTORY)
results, written = program.run(given["tokens"], scale=given["scale"])
again, _ = program.run(given["tokens"], scale=given["scale"])
assert results["nothing"] is None and type(results["pair"]) is tuple
np.savez("found.npz", scores=results["scores"], half=results["half"], positions=results["positions"], scale=written["scale"],
         again=again["scores"], **{f"new.{name}": program.weights[name] for name in program.manifest["mutated_weights"]})
print(json.dumps({"pair": results["pair"], "loaded": [m for m in sys.modules if m.partition(".")[0] in ("torch", "torchtpu")]}))
"""

# As README.md has it.
WITH_JAX_ALONE = BLOCKED + """
import json
import jax, numpy as np
from jax import export
from safetensors.numpy import load_file

given = np.load("given.npz")
stored = load_file(DIRECTORY + "/weights.safetensors")
program = export.deserialize(bytearray(open(DIRECTORY + "/program.jax_export", "rb").read()))
with jax.enable_x64(True):
    results, new_weights, new_inputs = program.call(stored, [given["tokens"], given["scale"]])
np.savez("found.npz", scores=results[0])
print(json.dumps(sorted(new_weights)))
"""


class Everything(nn.Module):
    """Tied weights, batch normalisation in training, a counter, a buffer outside of the state, a constant; mutates an input."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(8)
        self.mix = nn.Conv1d(8, 8, 3, padding=1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("offset", torch.arange(8.0), persistent=False)

    def forward(self, tokens: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        self.calls.add_(1)
        x = self.embedding(tokens) + self.offset + torch.tensor([0.5])
        x = self.mix(self.norm(x.transpose(1, 2))).transpose(1, 2)
        with torch.no_grad():
            positions = torch.arange(tokens.shape[0] * tokens.shape[1])
        x = x.reshape(-1, 8) / tokens.shape[0]
        x = x.view(tokens.shape[0], 1, -1, 8)
        x = nn.functional.scaled_dot_product_attention(x, x, x)
        scale.mul_(2)
        return {"scores": self.head(x), "nothing": None, "pair": (3, tokens.shape[0]), "positions": positions,
                "half": x[:, :, : tokens.shape[1] // 2]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    """A saved program with two open sizes, and the module that it was made of."""
    torch.manual_seed(0)
    module = Everything().train()
    batch, pairs = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("pairs", min=2, max=64)
    program = torch.export.export(
        module, (torch.zeros(4, 6, dtype=torch.int64),), {"scale": torch.ones(2)},
        dynamic_shapes={"tokens": {0: batch, 1: 2 * pairs}, "scale": None})
    return torchtpu.export.save(program, tmp_path_factory.mktemp("export") / "program"), module


@pytest.fixture(scope="module")
def given() -> dict[str, torch.Tensor]:
    return {"tokens": torch.arange(40).reshape(5, 8) % 10, "scale": torch.tensor([1.0, 3.0])}


def run(script: str, directory: Path, given: dict[str, torch.Tensor], tmp_path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    np.savez(tmp_path / "given.npz", **{name: value.numpy() for name, value in given.items()})  # type: ignore[arg-type]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", f"DIRECTORY = {str(directory)!r}\n{script}"], env=environment, cwd=tmp_path, capture_output=True,
        text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), dict(np.load(tmp_path / "found.npz"))


def close(found: np.ndarray, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=2e-5, atol=2e-5)
    assert found.dtype == expected.detach().numpy().dtype


def test_through_the_loader_that_lies_in_it(saved, given, tmp_path):
    directory, module = saved
    said, found = run(THROUGH_LOADER, directory, given, tmp_path)
    twin = copy.deepcopy(module)
    scale = given["scale"].clone()
    expected = twin(given["tokens"], scale=scale)
    assert said == {"pair": list(expected["pair"]), "loaded": []}
    for name in ("scores", "half", "positions"):
        close(found[name], expected[name])
    close(found["scale"], scale)
    close(found["again"], twin(given["tokens"], scale=scale)["scores"])
    buffers = dict(twin.named_buffers())
    changed = {name.removeprefix("new."): value for name, value in found.items() if name.startswith("new.")}
    assert set(changed) == {"calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    for name, value in changed.items():
        close(value, buffers[name])


def test_with_jax_alone(saved, given, tmp_path):
    directory, module = saved
    said, found = run(WITH_JAX_ALONE, directory, given, tmp_path)
    close(found["scores"], copy.deepcopy(module)(given["tokens"], scale=given["scale"].clone())["scores"])
    assert said == ["calls", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]


def test_the_manifest_says_what_there_is(saved):
    directory, _ = saved
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["platforms"] == ["cpu", "cuda", "tpu"]
    assert manifest["dimensions"] == {"tokens_dim0": {"min": 2, "max": 64}, "tokens_dim1_base": {"min": 2, "max": 64}}
    assert manifest["inputs"][0] == {"name": "tokens", "dtype": "int64", "shape": ["tokens_dim0", "2*tokens_dim1_base"]}
    assert manifest["weights"]["head.weight"]["stored_as"] == "embedding.weight"
    assert manifest["weights"]["offset"]["kind"] == "buffer"
    assert manifest["mutated_inputs"] == ["scale"]


def test_sizes_outside_of_their_range_are_refused(saved):
    program = torchtpu.export.load(saved[0])
    with pytest.raises(ValueError, match="expected tokens_dim0 from 2 to 64, got 65"):
        program.run(np.zeros((65, 4), np.int64), scale=np.ones(2, np.float32))
    with pytest.raises(ValueError, match="expected int64, got int32"):
        program.run(np.zeros((4, 4), np.int32), scale=np.ones(2, np.float32))
    with pytest.raises(ValueError, match=r"call run\(\)"):
        program(np.zeros((4, 4), np.int64), scale=np.ones(2, np.float32))
