"""Tensors with a shape and no data."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchtpu
from torchtpu.errors import AbstractTensorError


@pytest.mark.parametrize("read", [
    lambda x: x.cpu(), lambda x: x.tolist(), lambda x: x.sum().item(), lambda x: bool((x > 0).all()), torchtpu.to_jax,
    lambda x: torch.zeros(2, 2).copy_(x), lambda x: repr(x)])
def test_there_is_no_value_to_read(read):
    with torchtpu.abstract():
        x = torch.randn(2, 2, device="tpu") * 2
    with pytest.raises(AbstractTensorError, match=r"no value.*outside of torchtpu\.abstract"):
        read(x)


def test_a_model_larger_than_any_machine_trains_without_data():
    before = torch.tpu.memory_allocated()
    with torchtpu.abstract():
        with torch.device("tpu"):
            model = nn.Sequential(nn.Linear(1 << 20, 1 << 18, bias=False), nn.ReLU(), nn.Linear(1 << 18, 8))  # a terabyte
            x = torch.empty(4, 1 << 20)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.tpu.synchronize()
        assert loss.shape == () and model[0].weight.shape == (1 << 18, 1 << 20)
    assert torch.tpu.memory_allocated() - before < 1 << 20


def test_what_is_made_from_them_has_none_either():
    with torchtpu.abstract():
        x = torch.ones(2, 2, device="tpu")
        moved = torch.ones(2, 2).to("tpu")
    for made in (x + 1, moved[0], x + torch.ones(2, 2, device="tpu"), x.to(torch.float64), x.clone()):
        with pytest.raises(AbstractTensorError):
            made.tolist()


def test_ordinary_tensors_are_unharmed():
    real = torch.arange(3.0, device="tpu")
    doubled = real * 2  # recorded before, run within
    with torchtpu.abstract():
        x = real + 1
        assert torch.tensor([1, 2]).tolist() == [1, 2]
    assert doubled.tolist() == [0, 2, 4] and real.tolist() == [0, 1, 2]
    with pytest.raises(AbstractTensorError):
        x.tolist()
    assert (real + 1).tolist() == [1, 2, 3]


def test_a_value_can_be_given_later():
    with torchtpu.abstract():
        x = torch.empty(3, device="tpu")
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(12)
    with pytest.raises(AbstractTensorError):
        torchtpu.to_jax(torchtpu_like(x))


def torchtpu_like(x: torch.Tensor) -> torch.Tensor:
    with torchtpu.abstract():
        return torch.empty_like(x)


def test_blocks_nest_and_end_with_an_error():
    with pytest.raises(KeyError), torchtpu.abstract(), torchtpu.abstract():
        raise KeyError
    assert torch.ones(1, device="tpu").item() == 1
