"""How exact Airy's and Bessel's functions are, by mpmath; and that polynomials are the CPU's, whatever the degree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

from torchtpu.inspect import counters
from torchtpu.rules.special_polynomials import POLYNOMIALS

INF, NAN = float("inf"), float("nan")
EXACT: dict[str, Callable[[Any], Any]] = {
    "airy_ai": mpmath.airyai,
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.besselk(0, x) * mpmath.exp(x),
    "scaled_modified_bessel_k1": lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
    "spherical_bessel_j0": lambda x: mpmath.sin(x) / x,
}
BOTH_SIDES = ("airy_ai", "bessel_j0", "bessel_j1", "spherical_bessel_j0")
RANGES = ((1e-6, 0.5), (0.5, 2), (2, 2.2), (2.2, 5), (5, 9), (9, 60), (-2, -1e-3), (-9, -2.1), (-60, -9))
FLOATS = (torch.float32, torch.float64)
_NAMES = [key.removeprefix("aten::special_") for key in POLYNOMIALS]
DEGREES = (*range(-2, 13), 2.7, -0.5, 40, 127, 128, 131, 513, INF, -INF, NAN, 1e30)


def _error(values: torch.Tensor, exact: list[Any]) -> float:
    return max(float(abs(mpmath.mpf(v) - e)) for v, e in zip(values.double().tolist(), exact, strict=True))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_as_exact_as_the_cpu(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch.special, name)
    sides = [limits for limits in RANGES if limits[0] > 0 or name in BOTH_SIDES]
    points = [torch.linspace(*limits, 60, dtype=torch.float64).to(dtype) for limits in sides]
    ours = [function(x.to("tpu")) for x in points]  # one program
    with mpmath.workdps(30):
        for limits, x, got in zip(sides, points, ours, strict=True):
            exact = [EXACT[name](mpmath.mpf(value)) for value in x.double().tolist()]
            one_ulp = torch.finfo(dtype).eps * max(float(abs(e)) for e in exact)
            allowed = max(2 * _error(function(x), exact), 4 * one_ulp, 4 * torch.finfo(dtype).tiny)
            assert _error(got.cpu(), exact) <= allowed, limits


@pytest.mark.parametrize("name", ["airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_denominators_are_complete(name: str) -> None:
    x = torch.linspace(*((-9, -2.1) if name == "airy_ai" else (5, 9)), 60, dtype=torch.float64)
    exact = [EXACT[name](mpmath.mpf(value)) for value in x.tolist()]
    assert _error(getattr(torch.special, name)(x.to("tpu")).cpu(), exact) < 1e-14


@pytest.mark.parametrize("name", EXACT)
def test_poles_and_limits(name: str) -> None:
    function = getattr(torch.special, name)
    x = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e-30, 5, 2, 2.09, -2.09, 103.9, 104, 1e5] + [-1e-30, -5] * (name in BOTH_SIDES))
    torch.testing.assert_close(function(x.to("tpu")).cpu(), function(x), equal_nan=True, rtol=1e-5, atol=1e-6)
    negative = torch.tensor([-1.0, -7])
    assert name in BOTH_SIDES or function(negative.to("tpu")).isnan().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", _NAMES)
def test_polynomials(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch.special, name)
    ends = torch.tensor([1, -1, 0, -0.0, 0.5, INF, -INF, NAN, 1e10, 5, -7, 30])
    x = torch.cat([torch.linspace(-1.5, 1.5, 61), ends]).to(dtype)[:, None]
    n = torch.tensor(DEGREES, dtype=dtype)
    want, got = function(x, n), function(x.to("tpu"), n.to("tpu")).cpu()
    want = torch.where(x.isnan() & (n >= 2) & (n < 2.0**63), NAN, want)  # the CPU returns memory that was never written
    assert torch.equal(want.isfinite(), got.isfinite())
    exact = function(x.double(), n.double())
    finite = want.isfinite() & exact.isfinite() & (n < 100)
    ours, theirs = (((y.double() - exact).abs() / (1 + exact.abs()))[finite].max() for y in (got, want))
    assert ours <= max(2 * theirs, 200 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", _NAMES)
def test_numbers_and_integers(name: str) -> None:
    function = getattr(torch.special, name)
    before = sum(counters()["fallbacks"].values())
    x, n = torch.rand(5), torch.arange(5)
    for a, b in ((x, 3), (0.3, n), (n, n.to(torch.uint8)), (n > 2, n)):
        want = function(a, b)
        got = function(*(v.to("tpu") if isinstance(v, torch.Tensor) else v for v in (a, b)))
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)
    assert sum(counters()["fallbacks"].values()) == before


def test_degrees_beyond_the_closed_forms_end() -> None:
    """The loop ends with the last finite element, not with the degree."""
    x, n = torch.tensor([2.0, -3.0, 0.5]), torch.tensor([1e9, 1e6, 1e9])
    got = torch.special.chebyshev_polynomial_t(x.to("tpu"), n.to("tpu")).cpu()
    assert got[:2].isnan().all() and got[2].abs() <= 1
