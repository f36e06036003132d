"""What a program overwrites is computed where it is: nothing is copied away first, whatever else has its shape."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import torchtpu.inspect

ROWS, COUNT = 64, 6
ARRAY_BYTES = ROWS * ROWS * 4


def stepped(device: str, kind: type[torch.optim.Optimizer], read_gradients: bool, **options: float) -> list[torch.Tensor]:
    """Parameters after some steps: all of one shape, as are their gradients and the optimizer's state."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(ROWS, ROWS, generator=generator).to(device)) for _ in range(COUNT)]
    x = torch.randn(ROWS, ROWS, generator=generator).to(device)
    optimizer = kind(parameters, lr=1e-2, **options)
    for _ in range(4):
        optimizer.zero_grad()
        loss = sum(((x @ p).sin() * q).sum() for p, q in pairwise(parameters))
        loss.backward()
        kept = [p.grad for p in parameters if read_gradients]
        optimizer.step()
        torch.accelerator.synchronize()
        del kept
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("read_gradients", [True, False])
@pytest.mark.parametrize(("optimizer", "options", "states"), [
    (torch.optim.AdamW, {}, 3), (torch.optim.AdamW, {"foreach": False}, 3), (torch.optim.AdamW, {"fused": True}, 3),
    (torch.optim.SGD, {"momentum": 0.9}, 2), (torch.optim.RMSprop, {"centered": True}, 3)])
def test_a_step_updates_each_array_in_its_own_memory(optimizer, options, states, read_gradients):
    got = stepped("tpu", optimizer, read_gradients, **options)
    memory = torchtpu.inspect.last_program_memory()
    for ours, cpu in zip(got, stepped("cpu", optimizer, read_gradients, **options), strict=True):
        torch.testing.assert_close(ours.cpu(), cpu, rtol=1e-4, atol=1e-5)
    assert memory["alias_bytes"] >= states * COUNT * ARRAY_BYTES


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}])
def test_nothing_is_copied_away(options):
    """In the order of their shapes alone, parameters would be written over the moments, which are still to be read."""
    parameters = [torch.nn.Parameter(torch.randn(ROWS, ROWS).to("tpu")) for _ in range(COUNT)]
    for parameter in parameters:
        parameter.grad = torch.randn(ROWS, ROWS).to("tpu")
    optimizer = torch.optim.AdamW(parameters, **options)
    for _ in range(3):  # the first one makes the state
        optimizer.step()
        torch.accelerator.synchronize()
    assert torchtpu.inspect.last_program_memory()["temp_bytes"] < ARRAY_BYTES


def test_exchanged_contents():
    first, second = torch.arange(12.0), torch.arange(12.0) * -3
    a, b = first.to("tpu"), second.to("tpu")
    for _ in range(3):
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        torch.accelerator.synchronize()
    assert torch.equal(a.cpu(), second) and torch.equal(b.cpu(), first)


def test_a_buffer_that_changes_its_shape():
    """Nothing to take over: the new content has another size."""
    a, b = torch.ones(4, 4).to("tpu"), torch.full((4, 4), 2.0).to("tpu")
    for step in range(3):
        torch.add(b, step, out=a.resize_(0))
        b.add_(a)
        torch.accelerator.synchronize()
    assert torch.equal(a.cpu(), torch.full((4, 4), 11.0)) and torch.equal(b.cpu(), torch.full((4, 4), 20.0))


def test_a_result_that_is_dropped_beside_one_that_is_kept_is_not_computed():
    """Waiting for the device computes what nobody holds, too: who times an operator means it. Not so the other half of one."""
    x = torch.randn(2, 3, 64, 64).to("tpu")
    torch.accelerator.synchronize()
    kept = torch.nn.functional.max_pool2d(x, 2)
    torch.accelerator.synchronize()
    assert torchtpu.inspect.last_program_memory()["output_bytes"] < 2 * kept.nbytes  # the indices would be twice as large
    torch.nn.functional.max_pool2d(x, 3)
    torch.accelerator.synchronize()
    assert torchtpu.inspect.programs()[-1].num_nodes == 1
