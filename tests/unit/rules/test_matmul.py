"""Products of 64-bit integers as a TPU sums them; elsewhere XLA has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from torchtpu.rules.matmul import _BATCHED, _MATMUL, _summed

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize(("dimensions", "left", "right", "spec"), [
    (_MATMUL, (3, 4), (4, 5), "ij,jk->ik"),
    (_MATMUL, (3, 0), (0, 5), "ij,jk->ik"),
    (_MATMUL, (3, 4), (4,), "ij,j->i"),
    (_BATCHED, (2, 3, 4), (2, 4, 5), "bij,bjk->bik"),
    ((((0, 2), (0, 1)), ((), ())), (2, 3, 4), (2, 4, 5), "bij,bjk->ik"),
    ((((0,), (0,)), ((), ())), (6,), (6,), "i,i->"),
])
def test_whole_numbers(dimensions: tuple, left: tuple[int, ...], right: tuple[int, ...], spec: str) -> None:
    """Exact, and sums wrap."""
    a, b = (RANDOM.integers(-2**62, 2**62, shape) for shape in (left, right))
    with jax.enable_x64(True):
        came = np.asarray(_summed(jnp.asarray(a), jnp.asarray(b), dimensions))
    np.testing.assert_array_equal(came, np.einsum(spec, a, b))
