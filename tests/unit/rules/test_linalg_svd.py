"""Singular values as a TPU computes them; elsewhere JAX asks a library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from torchtpu.rules.linalg_svd import polar_svd

RANDOM = np.random.default_rng(7)
MATRICES = {
    "tall": RANDOM.normal(size=(8, 5)), "square": RANDOM.normal(size=(6, 6)), "one": np.full((1, 1), -2.0),
    "rank one": np.outer(RANDOM.normal(size=7), RANDOM.normal(size=4)), "zero": np.zeros((4, 4)), "equal": np.eye(5)[::-1],
    "small": RANDOM.normal(size=(5, 5)) * 1e-20, "large": RANDOM.normal(size=(5, 5)) * 1e18,
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_factors(name: str, full: bool) -> None:
    a = MATRICES[name].astype(np.float32)
    u, s, vh = (np.asarray(part, np.float64) for part in jax.jit(lambda a: polar_svd(a, full))(a))
    rows, columns = a.shape
    expected = np.linalg.svd(a.astype(np.float64), compute_uv=False)
    scale = expected[0] or 1
    assert u.shape == (rows, rows if full else columns)
    np.testing.assert_allclose(s / scale, expected / scale, atol=1e-6)
    np.testing.assert_allclose(u[:, :columns] * s @ vh / scale, a / scale, atol=2e-6)
    for factor in (u.T @ u, vh @ vh.T):
        np.testing.assert_allclose(factor, np.eye(len(factor)), atol=2e-6)


def test_not_finite() -> None:
    a = np.ones((4, 3), np.float32)
    a[1, 1] = np.nan
    assert all(np.isnan(np.asarray(part)).any() for part in polar_svd(jnp.asarray(a), False))
