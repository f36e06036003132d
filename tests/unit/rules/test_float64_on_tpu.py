"""What XLA:TPU, which has float64 as pairs of float32, cannot rewrite is not in what rules give it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from torchtpu.rules import special_error
from torchtpu.rules._numbers import rounded

FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "erfc": special_error.erfc, "erfcx": special_error.erfcx, "erfinv": special_error.erfinv,
    "to float32": lambda x: rounded(x, np.dtype(np.float32)), "to bfloat16": lambda x: rounded(x, np.dtype(jnp.bfloat16)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_reduced_precision(name: str) -> None:
    with jax.enable_x64(True):
        exported = export.export(jax.jit(FUNCTIONS[name]), platforms=["tpu"])(jax.ShapeDtypeStruct((3,), np.float64))
    assert "f64" in exported.mlir_module()
    assert "reduce_precision" not in exported.mlir_module()


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_rounded_is_rounded_there_too(dtype: type) -> None:
    """The form for a TPU, run on the CPU, against NumPy's cast."""
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=1000))
        anywhere = [export.DisabledSafetyCheck.platform()]
        exported = export.export(jax.jit(lambda x: rounded(x, np.dtype(dtype))), platforms=["tpu"], disabled_checks=anywhere)(x)
        np.testing.assert_array_equal(exported.call(x), np.asarray(x).astype(dtype).astype(np.float64))
