"""The parts of floats against NumPy's; 16-bit floats through float32, which holds them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from torchtpu.rules import _float_bits

VALUES = [0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.14159, 65504.0, 6.2e-5, 2.0**-14, np.inf, np.nan]
DTYPES = [jnp.bfloat16, np.float16, np.float32, np.float64]


def _both_signs(dtype: Any) -> np.ndarray:
    values = np.array(VALUES).astype(dtype)
    limits = jnp.finfo(dtype)
    values = np.concatenate([values, np.array([limits.max, limits.tiny], dtype)])
    return np.concatenate([values, -values])


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs(dtype: Any) -> None:
    x = _both_signs(dtype)
    y = np.roll(x, 5)
    wide = np.float64 if dtype is np.float64 else np.float32
    with jax.enable_x64(True):
        signs, copied = np.asarray(_float_bits.signbit(x)), np.asarray(_float_bits.copysign(x, y))
    np.testing.assert_array_equal(signs, np.signbit(x.astype(wide)))
    assert copied.dtype == x.dtype
    wanted = np.copysign(x.astype(wide), y.astype(wide))
    np.testing.assert_array_equal(copied.astype(wide), wanted)
    np.testing.assert_array_equal(np.signbit(copied.astype(wide)), np.signbit(wanted))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mantissa_and_exponent(dtype: Any) -> None:
    x = _both_signs(dtype)
    with jax.enable_x64(True):
        mantissa, exponent = (np.asarray(part) for part in _float_bits.frexp(jnp.asarray(x)))
    wanted = np.frexp(x)
    assert (mantissa.dtype, exponent.dtype) == (x.dtype, np.int32)
    np.testing.assert_array_equal(mantissa, wanted[0])
    np.testing.assert_array_equal(exponent, wanted[1])
