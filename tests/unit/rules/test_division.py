"""Division of 64-bit integers as a TPU does it, against Python's whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from torchtpu.rules import _division

RANDOM = np.random.default_rng(3)
EDGES = [0, 1, 2, 3, 7, 2**23 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1]


def _numbers(dtype: type, count: int) -> np.ndarray:
    """Of every length in bits, and of both signs if there are two."""
    lengths = RANDOM.integers(0, 64, count).astype(np.uint64)
    numbers = (RANDOM.integers(0, 2**64, count, dtype=np.uint64) >> lengths).astype(dtype)
    return np.where(RANDOM.random(count) < 0.5, -numbers, numbers) if dtype is np.int64 else numbers


def _pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    edges = np.array([*EDGES, *([-n for n in EDGES] + [-2**63] if dtype is np.int64 else [2**64 - 1])], dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    factors = _numbers(dtype, 3000) >> np.array(32, dtype), _numbers(dtype, 3000) >> np.array(32, dtype)
    product = factors[0] * factors[1]
    x = np.concatenate([x, _numbers(dtype, 3000), product, product - np.array(1, dtype)])
    y = np.concatenate([y, _numbers(dtype, 3000), factors[1], factors[1]])
    return x[y != 0], y[y != 0]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_quotient_and_remainder(dtype: type) -> None:
    """Where the quotient does not fit, it wraps."""
    x, y = _pairs(dtype)
    with jax.enable_x64(True):
        quotient, remainder = (np.asarray(part) for part in jax.jit(_division.divided_by_estimates)(x, y))
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    wanted = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
    np.testing.assert_array_equal(quotient, np.array([q % 2**64 for q in wanted], np.uint64).astype(dtype))
    np.testing.assert_array_equal(remainder, np.array([a - q * b for (a, b), q in zip(pairs, wanted, strict=True)], dtype))


@pytest.mark.parametrize(("function", "wanted"), [
    (_division._floor, lambda a, b: a // b), (_division._remainder, lambda a, b: a % b)])
def test_towards_minus_infinity(function: Callable[..., jax.Array], wanted: Callable[[int, int], int]) -> None:
    x, y = _pairs(np.int64)
    fits = ~((x == -2**63) & (y == -1))
    x, y = x[fits], y[fits]
    with jax.enable_x64(True):
        came = np.asarray(jax.jit(function)(x, y))
    np.testing.assert_array_equal(came, [wanted(int(a), int(b)) for a, b in zip(x, y, strict=True)])


def test_a_divisor_of_zero() -> None:
    with jax.enable_x64(True):
        quotient, remainder = _division.divided_by_estimates(jnp.asarray([5, -5, 0]), jnp.zeros(3, np.int64))
    assert (quotient.tolist(), remainder.tolist()) == ([-1, -1, -1], [5, -5, 0])


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8])
def test_common_divisors_and_multiples(dtype: type) -> None:
    x, y = (RANDOM.integers(0, 120, 400).astype(dtype) for _ in range(2))
    x[:3], y[1:4] = 0, 0
    with jax.enable_x64(True):
        divisors = np.asarray(_division.greatest_common_divisor(jnp.asarray(x), jnp.asarray(y)))
        multiples = np.asarray(_division.least_common_multiple(jnp.asarray(x), jnp.asarray(y)))
    assert divisors.dtype == multiples.dtype == dtype
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(divisors, [math.gcd(*pair) for pair in pairs])
    np.testing.assert_array_equal(multiples, np.array([math.lcm(*pair) for pair in pairs]).astype(dtype))
