"""Modules on the way to the device: identity, tied weights, optimizers that were there before."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x)) * self.scale


def train(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(4):
        x = torch.randint(0, 10, (16,), generator=generator).to(device)
        loss = nn.functional.cross_entropy(model(x), (x + 1) % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_parameters_keep_their_identity():
    model = Tied()
    parameter, seen = model.embedding.weight, weakref.ref(model.embedding.weight)
    values = parameter.detach().clone()
    assert model.to("tpu") is model and model.embedding.weight is parameter is model.head.weight
    assert parameter.device.type == "tpu" and torch.equal(parameter.detach().cpu(), values)
    assert model.scale.device.type == "tpu"
    model.half()
    assert parameter.dtype == torch.float16 and model.embedding.weight is parameter
    model.float().cpu()
    assert model.embedding.weight is parameter is model.head.weight and parameter.device.type == "cpu"
    assert seen() is parameter
    model.tpu()
    assert parameter.device.type == "tpu"


def test_tied_weights_stay_tied():
    losses = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = Tied().to(device)
        losses.append(train(model, torch.optim.SGD(model.parameters(), lr=0.5), device))
        assert model.head.weight is model.embedding.weight
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)
    assert losses[0][-1] < losses[0][0]


def test_an_optimizer_built_before_the_move_trains_the_moved_weights():
    losses = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = Tied()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model.to(device)
        losses.append(train(model, optimizer, device))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)


def test_gradients_move_along():
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    grad = model.weight.grad
    model.to("tpu")
    assert model.weight.grad.device.type == "tpu" and model.weight.grad.cpu().tolist() == [[1.0] * 3] * 2
    assert model.weight.grad is grad
    model(torch.ones(1, 3, device="tpu")).sum().backward()
    assert model.weight.grad.tolist() == [[2.0] * 3] * 2
    model.cpu()
    assert model.weight.grad.device.type == "cpu"


def test_other_ways_to_move():
    x = torch.ones(2)
    assert x.tpu().device == torch.device("tpu", 0) and x.tpu().is_tpu and not x.is_tpu
    assert x.to(torch.ones(1, device="tpu")).device.type == "tpu"
    assert x.to("tpu", torch.bfloat16).dtype == torch.bfloat16
    assert torch.nn.utils.rnn.pack_sequence([x]).to("tpu").data.device.type == "tpu"
    with torch.device("tpu"):
        assert nn.Linear(2, 2).weight.device.type == "tpu"
    assert nn.Linear(2, 2, device="tpu").weight.device.type == "tpu"
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    model.to_empty(device="tpu")
    nn.init.ones_(model.weight)
    assert model.weight.sum().item() == 4
    assert torch.zeros_like(x, device="tpu").device.type == x.new_zeros(2, device="tpu").device.type == "tpu"


def test_moving_frees_what_was_there():
    model = nn.Linear(1000, 1000)
    gc.collect()  # what tests before this one left in cycles
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    model.to("tpu")
    assert torch.tpu.memory_allocated() == before + 4 * 1_001_000
    model.cpu()
    gc.collect()
    assert torch.tpu.memory_allocated() == before


def test_hooks_and_spectral_norm_survive_the_move():
    torch.manual_seed(0)
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    expected = model(torch.ones(1, 3))
    model.to("tpu")
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(model(torch.ones(1, 3, device="tpu")).cpu(), expected)
    assert calls == [1]
