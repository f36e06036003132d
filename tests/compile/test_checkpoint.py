"""Checkpointing inside compiled code: recomputation that XLA cannot merge with the forward pass, whose program it shares."""

from __future__ import annotations

import importlib.util

import jax
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import torchtpu
from tests.record.test_checkpoint_barrier import BLOCKS, ROWS, WIDTH, Block, Model, Perceptron
from torchtpu.estimate import compile_for
from torchtpu.runtime import executables


def gradients(checkpointed: bool) -> tuple[list[torch.Tensor], int]:
    """Of one step, and how many barriers its program has."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model(Block, 8, checkpointed).to("tpu")
    x = torch.linspace(-1, 1, 2 * 4 * 8).reshape(2, 4, 8).to("tpu")
    torch.compile(model, backend="tpu")(x).square().mean().backward()
    torch.tpu.synchronize()
    program = executables.last_executable.program
    text = executables.lowered(program, jax.local_devices(backend="cpu")[0]).as_text()
    return [p.grad.cpu() for p in model.parameters()], text.count("optimization_barrier")


def test_recomputation_stands_behind_barriers(regions):
    kept, recomputed = gradients(False), gradients(True)
    assert regions == [True] * 4
    assert kept[1] == 0 and recomputed[1] >= BLOCKS
    torch.testing.assert_close(recomputed[0], kept[0], rtol=1e-5, atol=1e-7)


def test_dropout_is_drawn_again_in_the_program(regions):
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = checkpoint(lambda x: F.dropout(x, 0.5) * x.exp(), x, use_reentrant=False)
        return x

    x = torch.ones(32, 32).to("tpu").requires_grad_()
    compiled = torch.compile(function, backend="tpu")
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first.cpu(), second.cpu())
    (gradient,) = torch.autograd.grad(second.sum(), x)
    assert torch.equal(gradient.cpu() != 0, second.cpu() != 0)
    assert regions == [True, True]


def v5e_temp_bytes(checkpointed: bool) -> int:
    """Temporary memory of forward and backward pass, compiled ahead of time for one v5e chip."""
    with torchtpu.abstract():
        model = Model(Perceptron, WIDTH, checkpointed).to("tpu", torch.bfloat16)
        x = torch.empty(ROWS, WIDTH, device="tpu", dtype=torch.bfloat16)
        torch.compile(model, backend="tpu")(x).square().mean().backward()
        torch.tpu.synchronize()
    program = executables.last_abstract
    assert program is not None
    return compile_for(program, "v5e").temp_bytes


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu's compiler (pip install torchtpu[tpu])")
def test_checkpointing_halves_the_memory_of_a_v5e_step():
    recomputed, kept = v5e_temp_bytes(True), v5e_temp_bytes(False)
    assert recomputed < kept / 2
