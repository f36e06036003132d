"""Sequences of several lengths in recurrent layers, attention with masks, and modules that PyTorch's module database leaves out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import torchtpu.inspect

RECURRENT: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "RNN": (nn.RNN, {"nonlinearity": "relu"}),
    "LSTM": (nn.LSTM, {}),
    "GRU": (nn.GRU, {"num_layers": 2, "bidirectional": True, "dropout": 0.0}),
    "bidirectional LSTM": (nn.LSTM, {"bidirectional": True, "bias": False}),
    "projected LSTM": (nn.LSTM, {"proj_size": 2, "num_layers": 2}),
}


def to_cpu(tensors: Any) -> list[torch.Tensor]:
    return [t.detach().cpu() for t in tensors]


def recurrent(name: str, device: str, sort: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    kind, options = RECURRENT[name]
    layer = kind(3, 4, **options)
    x, lengths = torch.randn(5, 3, 3), torch.tensor([5, 3, 1] if sort else [2, 5, 3])
    layer.to(device)
    leaf = x.to(device).requires_grad_()
    out, state = layer(pack_padded_sequence(leaf, lengths, enforce_sorted=sort))
    assert isinstance(out, PackedSequence) and out.data.device.type == device
    padded, found = pad_packed_sequence(out)
    assert torch.equal(found, lengths)
    states = state if isinstance(state, tuple) else (state,)
    (padded.square().sum() + sum(s.sum() for s in states)).backward()
    assert leaf.grad is not None
    return to_cpu([padded, *states, leaf.grad, *(p.grad for p in layer.parameters() if p.grad is not None)])


@pytest.mark.parametrize("sort", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("name", RECURRENT)
def test_packed_sequences(name, sort):
    torch.testing.assert_close(recurrent(name, "tpu", sort), recurrent(name, "cpu", sort), rtol=1e-4, atol=1e-5)


def whole(name: str, device: str, dtype: torch.dtype, given: bool) -> list[torch.Tensor]:
    """Results and gradients of layers over sequences of one length, from given states or from none."""
    torch.manual_seed(0)
    kind, options = RECURRENT[name]
    layer = kind(3, 4, **options, batch_first=given, dtype=dtype)
    x = torch.randn(2, 5, 3, dtype=dtype) if given else torch.randn(5, 2, 3, dtype=dtype)
    states = [torch.randn(layer.num_layers * (1 + layer.bidirectional), 2, width, dtype=dtype)
              for width in ((layer.proj_size or 4), 4)[:2 if kind is nn.LSTM else 1]] if given else []
    layer.to(device)
    leaves = [t.to(device).requires_grad_() for t in (x, *states)]
    start = tuple(leaves[1:]) if len(leaves) > 2 else leaves[1] if given else None
    out, last = layer(leaves[0], start)
    lasts = last if isinstance(last, tuple) else (last,)
    (out.square().sum() + sum(s.sin().sum() for s in lasts)).backward()
    return to_cpu([out, *lasts, *(t.grad for t in leaves), *(p.grad for p in layer.parameters())])


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # PyTorch's own, on the CPU
@pytest.mark.parametrize("given", [True, False], ids=["given states", "no states"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9), (torch.bfloat16, 8e-2)], ids=str)
@pytest.mark.parametrize("name", RECURRENT)
def test_whole_layers(name, dtype, tolerance, given):
    torch.testing.assert_close(
        whole(name, "tpu", dtype, given), whole(name, "cpu", dtype, given), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_long_sequences_are_no_more_operators(kind):
    layer = kind(3, 4, bidirectional=True).to("tpu")

    def num_recorded(time: int) -> int:
        before = torchtpu.inspect.counters()["records"]
        layer(torch.zeros(time, 2, 3, device="tpu"))[0].sum().backward()
        return torchtpu.inspect.counters()["records"] - before

    num_recorded(2)  # gradients are added to from here on
    assert num_recorded(3) == num_recorded(30)


def test_inference_mode_uses_the_same_operator():
    layer, x = nn.GRU(3, 4).to("tpu"), torch.randn(5, 2, 3).to("tpu")
    before = torchtpu.inspect.counters()["records"]
    with torch.inference_mode():
        out = layer(x)[0]
        assert torchtpu.inspect.counters()["records"] - before < 10
    torch.testing.assert_close(out.cpu(), layer(x)[0].detach().cpu())


def test_autocast_of_layers():
    layer = nn.LSTM(3, 4, num_layers=2).to("tpu")
    x = torch.randn(5, 2, 3).to("tpu").requires_grad_()
    with torch.autocast("tpu"):
        out, (h, c) = layer(x)
    assert out.dtype == h.dtype == c.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32
    torch.testing.assert_close(out.detach().float(), layer(x)[0].detach(), rtol=3e-2, atol=3e-2)


def test_dropout_between_layers():
    layer, x = nn.LSTM(3, 64, num_layers=2, dropout=0.5).to("tpu"), torch.randn(5, 2, 3).to("tpu")
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


def test_gradients_of_gradients_of_layers():
    """As with cuDNN: the error tells the switch, and with it PyTorch takes the layer apart."""
    def twice(device: str) -> torch.Tensor:
        torch.manual_seed(0)
        layer, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
        leaf = x.to(device).requires_grad_()
        (grad,) = torch.autograd.grad(layer.to(device)(leaf)[0].square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), leaf)[0].cpu()

    with pytest.raises(NotImplementedError, match=r"torch.backends.cudnn.flags\(enabled=False\)"):
        twice("tpu")
    with torch.backends.cudnn.flags(enabled=False):
        torch.testing.assert_close(twice("tpu"), twice("cpu"), rtol=1e-4, atol=1e-5)


def test_transforms_take_layers_apart():
    layer, x = nn.RNN(3, 4).to("tpu"), torch.randn(5, 2, 3).to("tpu")
    leaf = x.clone().requires_grad_()
    layer(leaf)[0].square().sum().backward()
    torch.testing.assert_close(torch.func.grad(lambda x: layer(x)[0].square().sum())(x).cpu(), leaf.grad.cpu())
    _, tangent = torch.func.jvp(lambda x: layer(x)[0].square().sum(), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent.cpu(), leaf.grad.sum().cpu())


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_attention_with_masks(need_weights, train):
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(8, 2, batch_first=True)
        x = torch.randn(2, 5, 8).to(device).requires_grad_()
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]).to(device)
        causal = nn.Transformer.generate_square_subsequent_mask(5, device=device) < 0
        layer.to(device).train(train)
        with torch.set_grad_enabled(train):
            out, weights = layer(x, x, x, key_padding_mask=padding, attn_mask=causal, need_weights=need_weights)
        assert (weights is not None) == need_weights
        results = [out] + ([weights] if need_weights else [])
        if train:
            out.square().sum().backward()
            results += [x.grad, layer.in_proj_weight.grad]
        return to_cpu(results)

    torch.testing.assert_close(run("tpu"), run("cpu"), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own: its encoder uses strided nesting where it can
@pytest.mark.parametrize("train", [True, False])
def test_a_whole_transformer(train):
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        source, target = torch.randn(2, 4, 8).to(device), torch.randn(2, 3, 8).to(device)
        padding = torch.tensor([[False] * 4, [False] * 2 + [True] * 2]).to(device)
        mask = model.generate_square_subsequent_mask(3, device=device)
        model.to(device).train(train)
        with torch.set_grad_enabled(train):
            out = model(source, target, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding,
                        tgt_is_causal=True)
        if train:
            out.square().sum().backward()
        return to_cpu([out, *(p.grad for p in model.parameters() if p.grad is not None)])

    torch.testing.assert_close(run("tpu"), run("cpu"), rtol=1e-3, atol=1e-4)


def test_adaptive_softmax():
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = nn.AdaptiveLogSoftmaxWithLoss(6, 20, [4, 10], div_value=2.0).to(device)
        x = torch.randn(9, 6).to(device).requires_grad_()
        out, loss = layer(x, torch.tensor([0, 3, 5, 9, 11, 19, 2, 4, 10]).to(device))
        loss.backward()
        return to_cpu([out, loss, x.grad, layer.log_prob(x), layer.predict(x)])

    torch.testing.assert_close(run("tpu"), run("cpu"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("as_tensors", [True, False])
def test_one_program_serves_all_lengths_of_ctc(as_tensors):
    torch.manual_seed(0)
    x, targets = torch.randn(7, 2, 5).log_softmax(2).to("tpu").requires_grad_(), torch.tensor([[1, 2, 2], [3, 4, 1]]).to("tpu")
    compiles = []
    for lengths in ([3, 2], [1, 3], [2, 2]):
        before = torchtpu.inspect.counters()["compiles"]
        loss = nn.functional.ctc_loss(x, targets, *(torch.tensor(n) if as_tensors else n for n in ([7, 6], lengths)))
        loss.item(), torch.autograd.grad(loss, x)[0].cpu()
        compiles.append(torchtpu.inspect.counters()["compiles"] - before)
    assert compiles[1:] == [0, 0]


def test_ctc_of_joined_targets():
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(7, 3, 5).to(device).requires_grad_()
        targets = torch.tensor([1, 2, 2, 3, 4, 1]).to(device)
        loss = nn.CTCLoss()(x.log_softmax(2), targets, torch.tensor([7, 6, 5]), torch.tensor([3, 2, 1]))
        loss.backward()
        return to_cpu([loss, x.grad])

    torch.testing.assert_close(run("tpu"), run("cpu"), rtol=1e-4, atol=1e-5)
