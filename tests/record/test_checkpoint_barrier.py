"""Activation checkpointing saves memory although forward pass and recomputation are one program."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import jax
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torchtpu
from torchtpu.estimate import compile_for
from torchtpu.runtime import executables

BLOCKS, WIDTH, ROWS = 8, 128, 16384


class Block(nn.Module):
    """Attention and an MLP, as in GPT-2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Perceptron(nn.Module):
    """The block without attention, which takes the TPU's compiler much longer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.up(x)))


class Model(nn.Module):
    def __init__(self, block: Callable[[int], nn.Module], width: int, checkpointed: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(width) for _ in range(BLOCKS))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


def one_step(width: int, shape: tuple[int, int], checkpointed: bool) -> tuple[float, torch.Tensor]:
    """Loss and a gradient."""
    torch.manual_seed(0)
    model = Model(Block, width, checkpointed).to("tpu")
    x = torch.linspace(-1, 1, shape[0] * shape[1] * width).reshape(*shape, width).to("tpu")
    loss = model(x).square().mean()
    loss.backward()
    gradient = model.blocks[0].qkv.weight.grad
    model.zero_grad()
    return loss.item(), gradient.cpu()


def test_recomputation_stands_behind_a_barrier(count):
    texts = {}
    results = {}
    for checkpointed in (False, True):
        count.restart()
        results[checkpointed] = one_step(16, (2, 8), checkpointed)
        recorded = executables.last_executable.program
        assert len(recorded.nodes) > 100
        texts[checkpointed] = executables.lowered(recorded, jax.local_devices(backend="cpu")[0]).as_text()
    assert results[True][0] == pytest.approx(results[False][0], rel=1e-6)
    torch.testing.assert_close(results[True][1], results[False][1], rtol=1e-5, atol=1e-7)
    assert texts[False].count("optimization_barrier") == 0
    assert texts[True].count("optimization_barrier") == BLOCKS


def v5e_temp_bytes(checkpointed: bool) -> int:
    """Temporary memory of forward and backward pass, compiled ahead of time for one v5e chip."""
    with torchtpu.abstract():
        model = Model(Perceptron, WIDTH, checkpointed).to("tpu", torch.bfloat16)  # float32 takes the compiler five times as long
        model(torch.empty(ROWS, WIDTH, device="tpu", dtype=torch.bfloat16)).square().mean().backward()
        torch.tpu.synchronize()
    program = executables.last_abstract
    assert program is not None
    return compile_for(program, "v5e").temp_bytes


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu's compiler (pip install torchtpu[tpu])")
def test_checkpointing_halves_the_memory_of_a_v5e_step(count):
    recomputed, kept = v5e_temp_bytes(True), v5e_temp_bytes(False)
    assert recomputed < kept / 2
