"""Attention in float64: what is kept for its gradient, PyTorch keeps in float32."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_in_float64_have_its_digits(causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [10 * torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=generator) for _ in range(3)]

    def gradients(device: str) -> list[torch.Tensor]:
        leaves = [x.to(device).requires_grad_() for x in inputs]
        torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal).sin().sum().backward()
        return [x.grad.cpu() for x in leaves if x.grad is not None]

    torch.testing.assert_close(gradients("tpu"), gradients("cpu"), rtol=1e-11, atol=1e-11)
