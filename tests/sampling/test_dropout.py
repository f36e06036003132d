"""Dropout in all its forms, and the random slopes of RReLU: how much is dropped, in which pattern, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.sampling.test_distributions import LEVEL

P = 0.3
SHAPE = (50, 80, 5)  # samples, channels, places
ALPHA = -1.7580993408473766  # what SELU tends to: dropped elements become it, before scaling

DROPOUTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool, bool]] = {  # function, whole channels, keeps moments
    "dropout": (lambda x: F.dropout(x, P), False, False),
    "dropout_": (lambda x: torch.dropout_(x.clone(), P, True), False, False),
    "native_dropout": (lambda x: torch.native_dropout(x, P, True)[0], False, False),
    "Dropout1d": (nn.Dropout1d(P), True, False),
    "feature_dropout": (lambda x: torch.feature_dropout(x, P, True), True, False),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, P, True), False, True),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout(P), True, True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("name", DROPOUTS)
def test_what_is_dropped(name, dtype):
    torch.manual_seed(0)
    function, channels, keeps_moments = DROPOUTS[name]
    out = function(torch.ones(SHAPE, dtype=dtype, device="tpu")).cpu()
    assert out.dtype == dtype
    scale = (P * (1 - P) * ALPHA**2 + 1 - P) ** -0.5 if keeps_moments else 1 / (1 - P)
    dropped, kept = (ALPHA * P * -scale + scale * ALPHA, scale - scale * ALPHA * P) if keeps_moments else (0.0, scale)
    is_dropped = (out.double() - dropped).abs() < (out.double() - kept).abs()
    expected = torch.where(is_dropped, dropped, kept).to(dtype)
    torch.testing.assert_close(out, expected, rtol=2 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps)
    if channels:
        assert torch.equal(is_dropped.all(-1), is_dropped.any(-1))
        is_dropped = is_dropped[..., 0]
    assert stats.binomtest(int(is_dropped.sum()), is_dropped.numel(), P).pvalue > LEVEL


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_the_ends_of_the_probability(name):
    x = torch.arange(1.0, 25, device="tpu").view(2, 3, 4)
    function = getattr(torch, name)
    assert torch.equal(function(x, 0.0, True).cpu(), x.cpu())
    assert torch.equal(function(x, 1.0, True).cpu(), torch.zeros(2, 3, 4))
    assert torch.equal(function(x, 0.5, False).cpu(), x.cpu())


def test_random_slopes():
    torch.manual_seed(1)
    x = torch.linspace(-2, 2, 20_000, device="tpu", requires_grad=True)
    out = F.rrelu(x, 0.1, 0.4, training=True)
    out.sum().backward()
    assert x.grad is not None
    inputs, outputs, slopes = (t.detach().cpu().double() for t in (x, out, x.grad))
    torch.testing.assert_close(outputs, inputs * slopes, rtol=1e-6, atol=1e-7)
    assert (slopes[inputs > 0] == 1).all()
    assert stats.kstest(slopes[inputs < 0].numpy(), stats.uniform(0.1, 0.3).cdf).pvalue > LEVEL


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("mode", ["strict", "debug"])
def test_recomputation_repeats_every_kind_of_mask(mode, reentrant):
    """In fused mode, tests/record/test_rng.py looks at it.

    RReLU is not here: PyTorch stops recomputing before its noise is drawn, on the CPU too.
    """
    layer = nn.Sequential(nn.Dropout(0.5), nn.AlphaDropout(0.5))

    def gradient(run: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(2)
        x = torch.linspace(-1, 1, 64, device="tpu", requires_grad=True)
        out = run(x)
        (out * out).sum().backward()
        assert x.grad is not None
        return [out.detach().cpu(), x.grad.cpu()]

    with torch.tpu.set_eager_mode(mode):
        plain, again = gradient(layer), gradient(lambda x: checkpoint(layer, x, use_reentrant=reentrant))
    torch.testing.assert_close(plain, again)
