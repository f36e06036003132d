"""``torchtpu.inspect.compare``: finds the operator that is wrong, forward and backward, and nothing where all is right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchtpu.inspect import compare
from torchtpu.rules.registry import RULES

_sizes = itertools.count(101, 2)  # a signature keeps its rule for ever: no two tests may share a shape


@pytest.fixture
def size() -> int:
    return next(_sizes)


@pytest.fixture
def wrong_rule() -> Iterator[Callable[[str, Callable[..., Any]], None]]:
    """``wrong_rule(key, change)`` lets the operator's rule return ``change(result)``."""
    before = dict(RULES)

    def register(key: str, change: Callable[[Any], Any]) -> None:
        right = RULES[key].function
        RULES[key] = replace(RULES[key], function=lambda *args, **kwargs: change(right(*args, **kwargs)))

    yield register
    RULES.clear()
    RULES.update(before)


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def test_nothing_differs(size: int) -> None:
    found = compare(lambda x: (x.exp() + 1).sum(), torch.linspace(-1, 1, size))
    assert found.divergence is None
    assert found.num_compared == 3
    assert str(found) == "no difference in 3 operators"
    assert found.result.device.type == "tpu"


def test_wrong_operator_is_found_with_its_line_and_its_inputs(size: int, wrong_rule: Any) -> None:
    wrong_rule("aten::tanh", lambda result: result.at[3].add(0.5))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        z = y.tanh()
        return z.exp()

    x = torch.linspace(1, 2, size)
    found = compare(function, x).divergence
    assert found is not None
    assert (found.op, found.line, found.is_backward, found.number) == ("aten::tanh", line_of(function, 2), False, 1)
    assert found.errors.absolute == pytest.approx(0.5)
    assert found.errors.relative == pytest.approx(0.5 / float((x[3] + 1).tanh()), rel=1e-4)
    assert [(i.description, i.errors.absolute) for i in found.inputs] == [(f"self: float32[{size}]", 0.0)]
    assert f"aten::tanh, operator 1, in {found.line}: float32[{size}] (largest error: absolute 0.5" in str(found)


def test_errors_below_the_tolerance_show_as_those_of_the_inputs(size: int, wrong_rule: Any) -> None:
    wrong_rule("aten::tanh", lambda result: result + 1e-3)
    x = torch.linspace(0, 1, size)
    assert compare(lambda x: x.tanh(), x, rtol=1e-2).divergence is None
    found = compare(lambda x: x.tanh().mul(1e3), x, rtol=0.0, atol=0.5).divergence
    assert found is not None
    assert found.op == "aten::mul.Tensor"
    assert found.inputs[0].errors.absolute == pytest.approx(1e-3, rel=1e-3)
    assert found.errors.absolute == pytest.approx(1.0, rel=1e-3)


def test_wrong_operator_of_a_backward_pass_names_the_forward_line(size: int, wrong_rule: Any) -> None:
    wrong_rule("aten::sigmoid_backward", lambda result: 2 * result)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).sigmoid()
        loss = y.sum()
        loss.backward()
        return loss

    found = compare(function, torch.linspace(-1, 1, size).requires_grad_()).divergence
    assert found is not None
    assert (found.op, found.line, found.is_backward) == ("aten::sigmoid_backward", line_of(function, 1), True)
    assert str(found).startswith("aten::sigmoid_backward, operator 4, in the backward pass of ")


def test_writes_to_views_are_followed(size: int, wrong_rule: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[1:3].mul_(3)
        y.view(-1)[::2].fill_(7)
        return y.cosh() + x.t().reshape(-1)[: y.numel()].view_as(y)

    x = torch.linspace(-1, 1, 4 * size).view(4, size)
    assert compare(function, x).divergence is None
    wrong_rule("aten::mul.Tensor", lambda result: result + 1)
    found = compare(function, torch.cat([x, x], 1)).divergence
    assert found is not None
    assert (found.op, found.line) == ("aten::mul_.Tensor", line_of(function, 2))


def test_training_with_dropout_and_optimizer(size: int) -> None:
    def train(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    model = nn.Sequential(nn.Linear(size, 4), nn.Dropout(0.5))
    before = [p.clone() for p in model.parameters()]
    found = compare(train, model, torch.randn(3, size))
    assert found.divergence is None
    assert found.num_drawn == 1
    assert found.not_compared == {}
    assert "(1 of them random, given the CPU's draws)" in str(found)
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert parameter.device.type == "cpu"
        assert torch.equal(parameter, value)


def test_draws_are_the_cpus(size: int) -> None:
    found = compare(lambda: torch.randn(size, device="tpu"), seed=5)
    torch.manual_seed(5)
    assert torch.equal(found.result.cpu(), torch.randn(size))


@pytest.mark.parametrize("backward", [False, True])
def test_attention_is_compared_with_the_cpus(size: int, wrong_rule: Any, backward: bool) -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(q, q + 1, q * 2, is_causal=True)
        out.sum().backward()
        return out

    q = torch.linspace(-0.5, 0.5, 10 * size).view(1, 2, 5, size).requires_grad_()
    if backward:
        assert compare(attend, q).divergence is None
    key = "aten::_scaled_dot_product_fused_attention_overrideable" + "_backward" * backward
    wrong_rule(key, lambda results: [jnp.negative(results[0]), *results[1:]])
    found = compare(attend, torch.cat([q, q], 2).detach().requires_grad_()).divergence
    assert found is not None
    assert (found.op, found.is_backward) == (key, backward)


def test_operators_that_the_cpu_lacks_are_told(size: int) -> None:
    q = torch.randn(1, 4, 5, size)
    found = compare(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True).exp(), q, q[:, :2].contiguous())
    assert found.divergence is None
    assert found.not_compared == {"aten::_scaled_dot_product_fused_attention_overrideable": 1}
    assert "not compared" in str(found)


def test_gradient_that_cancels_is_no_difference(size: int) -> None:
    def step(model: nn.Module, x: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        model(x).square().mean().backward()  # the bias before a batch norm changes nothing: its gradient is noise
        optimizer.step()  # which Adam takes for as much as any other

    model = nn.Sequential(nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3))
    found = compare(step, model, torch.linspace(-1, 2, 4 * size).view(4, 1, size))
    assert found.divergence is None
    assert found.num_inherited > 0
    assert "by no fault of their operators" in str(found)


def test_integers_must_be_equal(size: int, wrong_rule: Any) -> None:
    wrong_rule("aten::cumsum", lambda result: result + 1)
    found = compare(lambda x: x.cumsum(0), torch.arange(size)).divergence
    assert found is not None
    assert found.errors.absolute == 1


def test_nan_and_infinity(size: int, wrong_rule: Any) -> None:
    x = torch.linspace(-1, 1, size)
    assert compare(lambda x: (x / 0).log(), x).divergence is None
    wrong_rule("aten::log", lambda result: jnp.where(jnp.isnan(result), 0.0, result))
    found = compare(lambda x: (x / 0).log(), torch.cat([x, x])).divergence
    assert found is not None
    assert (found.op, found.errors.absolute) == ("aten::log", float("inf"))


def test_bad_index_raises_the_cpus_error(size: int) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        compare(lambda x, i: x[i], torch.randn(size), torch.tensor([size + 5]))
