"""What a rule may know beside its arguments: the first parameter of every rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

_WIDE = {np.dtype(jnp.bfloat16): np.dtype(np.float32), np.dtype(np.float16): np.dtype(np.float32)}


def opmath(dtype: np.dtype) -> np.dtype:
    """The dtype that ATen computes in for data of ``dtype``: float32 for 16-bit floats, else the dtype itself."""
    return _WIDE.get(np.dtype(dtype), np.dtype(dtype))


class Subgraph(Protocol):
    """A graph that a higher-order operator is given, as a function of arrays (and of sizes, which are ints).

    ``step`` tells the iterations of a loop apart, so that each draws random numbers of its own. ``wide`` computes what is a
    16-bit float in the graph in the dtype that sums of these are computed in.
    """

    def __call__(self, *inputs: Any, step: jax.Array | None = None, wide: bool = False) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class RuleContext:
    """Facts about one call of a rule; constant for a signature, so a rule may branch on them while being traced.

    Attributes:
        op: the functional key, such as ``"aten::addmm"``.
        outputs: shape and dtype of each tensor that PyTorch's own inference says the operator returns, in order
            (lists flattened; an output that is None or not a tensor is left out).
        common_dtype: PyTorch's type promotion over all tensor and number arguments.
        matmul_precision: what ``torch.set_float32_matmul_precision`` asks for.
        draws: for random operators, makes the JAX key of each draw: one, unless the operator is many; empty for all others.
        row_major: of every tensor argument, whether it is contiguous; empty if that is not known. Values do not depend on
            it, but PyTorch's gradient formulas for factorisations do.
    """

    op: str
    outputs: tuple[jax.ShapeDtypeStruct, ...]
    common_dtype: np.dtype
    matmul_precision: jax.lax.Precision
    draws: tuple[Callable[[], jax.Array], ...] = ()
    row_major: tuple[bool, ...] = ()

    @property
    def out_dtype(self) -> np.dtype:
        """Dtype of the first output."""
        return np.dtype(self.outputs[0].dtype)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return tuple(self.outputs[0].shape)

    @property
    def compute_dtype(self) -> np.dtype:
        """The dtype that ATen computes in for these arguments: ``opmath(common_dtype)``."""
        return opmath(self.common_dtype)

    def accum(self, dtype: np.dtype) -> np.dtype:
        """The dtype in which sums and products over data of ``dtype`` are accumulated."""
        return opmath(dtype)

    def key(self) -> jax.Array:
        """A fresh JAX key for this draw, equal for equal generator states.

        Raises:
            RuntimeError: the operator takes no generator (a fault of the caller).
        """
        if not self.draws:
            raise RuntimeError(f"{self.op} draws no random numbers")
        return self.draws[0]()
