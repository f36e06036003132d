"""Jagged nested tensors: values and gradients are those of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchtpu.errors import JaggedMaskError

LENGTHS = (3, 5, 1)
WIDTH = 8


def jagged(device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(length, WIDTH, generator=generator) for length in LENGTHS]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, device=device, requires_grad=True)


def layer(make: Callable[[], nn.Module], x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    return make().to(x.device)(x)


def attention(x: torch.Tensor, is_causal: bool) -> torch.Tensor:
    heads = x.unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)
    out = F.scaled_dot_product_attention(heads, heads * 0.5, heads + 1, is_causal=is_causal)
    return out.transpose(1, 2).flatten(-2)


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "elementwise": lambda x: (x * 2 + 1).sigmoid() - x.exp(),
    "linear": lambda x: layer(lambda: nn.Linear(WIDTH, 3), x),
    "layer_norm": lambda x: layer(lambda: nn.LayerNorm(WIDTH), x),
    "softmax": lambda x: x.softmax(-1),
    "matmul": lambda x: x @ torch.linspace(0, 1, WIDTH * 2, device=x.device).view(WIDTH, 2),
    "feed-forward": lambda x: layer(lambda: nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH)), x) + x,
    "to_padded_tensor": lambda x: x.to_padded_tensor(-1.0),
    "attention": lambda x: attention(x, False),
    "unbind": lambda x: torch.cat([part * (i + 1) for i, part in enumerate(x.unbind())]),
}


def run(name: str, device: str) -> list[torch.Tensor]:
    x = jagged(device)
    out = CALLS[name](x)
    values = out.values() if out.is_nested else out
    values.square().sum().backward()
    assert x.grad is not None
    return [values.detach().cpu(), x.grad.values().cpu()]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # the CPU's attention makes strided ones in between
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_of(name):
    torch.testing.assert_close(run(name, "tpu"), run(name, "cpu"), rtol=1e-4, atol=1e-5)


def test_causal_attention():
    """The CPU has none for jagged tensors: each sequence for itself."""
    x = jagged("tpu")
    out = attention(x, True)
    for ours, rows in zip(out.unbind(), x.detach().cpu().unbind(), strict=True):
        heads = rows.unflatten(-1, (2, WIDTH // 2)).transpose(0, 1)
        theirs = F.scaled_dot_product_attention(heads, heads * 0.5, heads + 1, is_causal=True)
        torch.testing.assert_close(ours.detach().cpu(), theirs.transpose(0, 1).flatten(-2), rtol=1e-4, atol=1e-5)


def test_moving_and_making():
    x = jagged("cpu").detach()
    moved = x.to("tpu")
    assert moved.device.type == "tpu" and [part.shape for part in moved.unbind()] == [(length, WIDTH) for length in LENGTHS]
    torch.testing.assert_close(moved.cpu().values(), x.values())
    offsets = torch.tensor([0, 2, 5], device="tpu")
    parts = torch.nested.nested_tensor_from_jagged(torch.arange(5.0, device="tpu")[:, None], offsets).unbind()
    assert [part.flatten().tolist() for part in parts] == [[0, 1], [2, 3, 4]]


def test_a_mask_is_refused_with_what_to_do():
    """The CPU refuses it as well."""
    heads = jagged("tpu").detach().unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)
    with pytest.raises(JaggedMaskError, match=r"got torch\.bool\[5, 5\].*to_padded_tensor"):
        F.scaled_dot_product_attention(heads, heads, heads, attn_mask=torch.ones(5, 5, dtype=torch.bool, device="tpu"))
    with pytest.raises(ValueError, match="not yet supported"):
        F.scaled_dot_product_attention(*[heads.cpu()] * 3, attn_mask=torch.ones(5, 5, dtype=torch.bool))
