"""Subclasses of tensors and parameters, and what PyTorch builds of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils import _pytree as pytree


class Named(torch.Tensor):
    """Remembers the functions that it went through."""

    calls: list[str] = []  # noqa: RUF012 - shared on purpose

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubled(torch.Tensor):
    """Wraps a tensor that holds half of its values."""

    half: torch.Tensor

    @staticmethod
    def __new__(cls, half: torch.Tensor) -> Doubled:
        self = torch.Tensor._make_wrapper_subclass(
            cls, half.shape, strides=half.stride(), dtype=half.dtype, device=half.device, requires_grad=half.requires_grad)
        self.half = half
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(x: Any) -> Any:
            return x.half * 2 if isinstance(x, Doubled) else x

        out = func(*pytree.tree_map(unwrap, args), **pytree.tree_map(unwrap, kwargs or {}))
        return pytree.tree_map(lambda x: Doubled(x / 2) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, out)


class Tagged(nn.Parameter):
    """A parameter with a class of its own."""


def test_torch_function():
    Named.calls.clear()
    x = torch.arange(4.0, device="tpu").as_subclass(Named)
    y = (x + 1).relu()[1:]
    assert type(y) is Named and y.device.type == "tpu" and {"add", "relu", "__getitem__"} <= set(Named.calls)
    assert y.as_subclass(torch.Tensor).tolist() == [2, 3, 4]


def test_torch_dispatch():
    inner = torch.ones(3, 3, device="tpu")
    x = Doubled(inner)
    assert x.device.type == "tpu" and x.shape == (3, 3)
    y = (x @ x).sum(0)
    assert type(y) is Doubled and (y.half * 2).tolist() == [36, 36, 36]
    weight = torch.full((3,), 2.0, device="tpu", requires_grad=True)
    out = torch.mul(Doubled(inner.detach()), weight)
    out.backward(Doubled(torch.ones(3, 3, device="tpu")))
    assert type(weight.grad) is Doubled and (weight.grad.half * 2).tolist() == [12, 12, 12]


def test_subclass_of_parameter():
    layer = nn.Linear(3, 2)
    layer.weight = Tagged(layer.weight.detach())
    layer.to("tpu")
    assert type(layer.weight) is Tagged and layer.weight.device.type == "tpu"
    layer(torch.ones(1, 3, device="tpu")).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[1.0] * 3] * 2


class Symmetric(nn.Module):
    """The upper triangle on both sides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).mT


def _parametrized(kind: str) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    if kind == "parametrize":
        parametrize.register_parametrization(layer, "weight", Symmetric())
    else:
        getattr(parametrizations, kind)(layer)
    return layer


@pytest.mark.parametrize("kind", ["parametrize", "weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations(kind):
    results = []
    for device in ("cpu", "tpu"):
        layer = _parametrized(kind).to(device)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = layer(torch.ones(2, 4, device=device)).square().sum()
            loss.backward()
            optimizer.step()
        results.append([loss.detach().cpu(), layer.weight.detach().cpu()])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
