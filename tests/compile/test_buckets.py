"""Sizes in buckets: how many programs there are, and what the results are like."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtpu.inspect
from tests.compile.padded import AT_ONCE, randn
from torchtpu.compile import ShapePolicy, buckets, region, set_shape_policy

pytestmark = pytest.mark.usefixtures("without_gradients")


def test_refused_graphs_stay_exact():
    torchtpu.inspect.reset_counters()
    compiled = torch.compile(lambda x: x.sort(0)[0] * 2, backend="tpu", dynamic=True)
    with set_shape_policy(ShapePolicy(exact=0)):
        for rows in (3, 5, 9):
            x = randn(rows, 4)
            torch.testing.assert_close(compiled(x.to("tpu")).cpu(), x.sort(0)[0] * 2)
    counters = torchtpu.inspect.counters()
    assert counters["unpadded"]["aten::sort"] == 1
    assert buckets._REASON in counters["flushes"]  # along the other dimension


@pytest.mark.parametrize("function", [
    lambda x: x * (x.shape[0] / 3), lambda x: F.scaled_dot_product_attention(*[x.t()[None]] * 3),
    lambda x: F.scaled_dot_product_attention(*[x[None]] * 3, is_causal=True)], ids=["quotient", "scale", "other_scale"])
def test_numbers_that_are_no_sizes(function):
    """Where they follow from a size, it stays exact."""
    compiled = torch.compile(function, backend="tpu", dynamic=True)
    with set_shape_policy(ShapePolicy(exact=0)):
        for rows in (3, 5, 9):
            x = randn(rows, 4)
            torch.testing.assert_close(compiled(x.to("tpu")).cpu(), function(x), rtol=1e-4, atol=1e-5)


class Encoder(nn.Module):
    """A layer without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_programs_of_many_sizes(monkeypatch):
    lowered = []

    class Spy(region.Interpreter):
        def run(self, inputs: Any) -> Any:
            lowered.append(1)
            return super().run(inputs)

    monkeypatch.setattr(region, "Interpreter", Spy)
    torch.manual_seed(0)
    model = Encoder()
    ours = copy.deepcopy(model).to("tpu")
    compiled = torch.compile(ours, backend="tpu", dynamic=True)
    with set_shape_policy(ShapePolicy(exact=2, smallest=4)):
        for batch, length in [(2, 3), (3, 5), (3, 4), (4, 3), (5, 6), (8, 7), (6, 8), (2, 3), (7, 5)]:
            x = randn(batch, length, 8)
            torch.testing.assert_close(compiled(x.to("tpu")).cpu(), model(x), rtol=1e-4, atol=1e-5)
    assert len(lowered) == 4  # at 2x3, 3x5, 4x4 and 8x8


def test_padded_results_go_on_as_they_are(count):
    """A second graph takes what the first one made, its padding included: nothing is padded, or cut out."""
    x = randn(11, 4)
    ours = x.to("tpu")
    first, second = (torch.compile(f, backend="tpu") for f in (lambda x: x.exp(), lambda x: x.sin().sum(0)))
    torch._dynamo.mark_dynamic(ours, 0)
    with set_shape_policy(AT_ONCE):
        middle = first(ours)
        torch._dynamo.mark_dynamic(middle, 0)
        count.restart()
        result = second(middle)
    assert middle.untyped_storage().nbytes() == 16 * 4 * 4
    assert middle.is_contiguous()
    torch.testing.assert_close(result.cpu(), x.exp().sin().sum(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(middle.cpu(), x.exp())
    assert count.programs == 1


def test_results_may_be_changed():
    x = randn(11, 4)
    with set_shape_policy(AT_ONCE), torch.enable_grad():
        ours = x.to("tpu").requires_grad_()
        torch._dynamo.mark_dynamic(ours, 0)
        result = torch.compile(lambda x: x.exp() * 2, backend="tpu")(ours)
        result.mul_(3)
        result.sum().backward()
    assert not result._is_view()
    torch.testing.assert_close(result.detach().cpu(), x.exp() * 6)
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad.cpu(), x.exp() * 6)


def test_sizes_that_come_as_expressions():
    """A backward pass gets products of sizes too; what cannot be told from plain ones stays exact."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    ours = copy.deepcopy(model).to("tpu")
    compiled = torch.compile(ours, backend="tpu", dynamic=True)
    with set_shape_policy(ShapePolicy(exact=0)), torch.enable_grad():
        for batch, length in ((3, 5), (9, 3), (4, 11)):
            x = randn(batch, length, 4)
            for run, device in ((model, "cpu"), (compiled, "tpu")):
                run.zero_grad()
                run(x.to(device)).square().sum().backward()
            for mine, theirs in zip(ours.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_training_with_many_batch_sizes(count):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    ours = copy.deepcopy(model).to("tpu")
    compiled = torch.compile(ours, backend="tpu", dynamic=True)
    with set_shape_policy(ShapePolicy(exact=0)), torch.enable_grad():
        for rows in (3, 9, 12, 16):
            x = randn(rows, 4)
            for run, device in ((model, "cpu"), (compiled, "tpu")):
                run.zero_grad()
                run(x.to(device)).square().sum().backward()
            for mine, theirs in zip(ours.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)
    assert count.reasons[buckets._REASON] >= 8


def test_written_inputs():
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    x = randn(11, 4)
    base = torch.cat([x, torch.ones(5, 4)]).to("tpu")
    ours = base[:11]
    torch._dynamo.mark_dynamic(ours, 0)
    with set_shape_policy(AT_ONCE):
        result = torch.compile(function, backend="tpu")(ours)
    torch.testing.assert_close(result.cpu(), x * 2 + 1)
    torch.testing.assert_close(base.cpu(), torch.cat([x * 2, torch.ones(5, 4)]))
