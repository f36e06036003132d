"""Open sizes: from the symbols of ``torch.export`` to the symbolic dimensions of ``jax.export``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import torch
from jax import export

from torchtpu.errors import ExportError
from torchtpu.graph.sizes import Sizes


class OpenSizes(Sizes):
    """What stands for each size of an exported program.

    A symbol gets the name of the first input dimension that it is the size of, ``tokens_dim0``, or of one that follows from it,
    ``tokens_dim1_base``; PyTorch does not keep the names of ``torch.export.Dim``. Ranges become constraints, where a lower bound is
    at least 1: symbolic dimensions of JAX are never 0.

    Attributes:
        ranges: by name of the dimension, its smallest and largest size (None: no bound).
    """

    def __init__(self, inputs: Iterable[tuple[str, torch.Tensor]], constraints: dict[Any, Any]) -> None:
        super().__init__()
        names = _names(inputs)
        self.ranges = {name: _bounds(constraints.get(symbol)) for symbol, name in names.items()}
        self._dims: dict[Any, Any] = {}
        if names:
            limits = [f"{name} >= {low}" for name, (low, _) in self.ranges.items() if low > 1]
            limits += [f"{name} <= {high}" for name, (_, high) in self.ranges.items() if high is not None]
            made = export.symbolic_shape(",".join(names.values()), constraints=limits)
            self._dims = dict(zip(names, made, strict=True))

    def of(self, value: Any) -> Any:
        """An int or a dimension expression for a ``torch.SymInt``; everything else as it is.

        Raises:
            ExportError: the size depends on the values of a tensor.
        """
        if not isinstance(value, torch.SymInt):
            return value
        from torch.utils._sympy.interp import sympy_interp

        return sympy_interp(_analysis(), self._dims, value.node.expr, missing_handler=_unknown)

    def aval(self, tensor: torch.Tensor, dtype: Any) -> jax.ShapeDtypeStruct:
        """Shape and dtype of a tensor whose sizes may be open."""
        return jax.ShapeDtypeStruct(self.shape(tensor), dtype)


def _names(inputs: Iterable[tuple[str, torch.Tensor]]) -> dict[Any, str]:
    """Of every symbol in the shapes of inputs, a name."""
    names: dict[Any, str] = {}
    derived: dict[Any, str] = {}
    for name, tensor in inputs:
        for dim, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt):
                expression = size.node.expr
                if expression.is_Symbol:
                    names.setdefault(expression, f"{name}_dim{dim}")
                for symbol in expression.free_symbols:
                    derived.setdefault(symbol, f"{name}_dim{dim}_base")
    return {**derived, **names}


def _bounds(limits: Any) -> tuple[int, int | None]:
    """Lower and upper bound of a symbol's range."""
    if limits is None:
        return 1, None
    return max(int(limits.lower), 1), int(limits.upper) if limits.upper.is_Integer else None


def _unknown(symbol: Any) -> Any:
    raise ExportError(
        what=f"A size ({symbol}) that depends on the values of a tensor", where="",
        why="A program that was compiled ahead has one shape for all values.",
        fix="Pad to a fixed size, or leave this part out of the exported module.")


def _analysis() -> type:
    """How a sympy expression of sizes is computed with JAX's dimension expressions."""
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    class OnDimensions(PythonReferenceAnalysis):
        minimum: Callable[..., Any] = staticmethod(jax.core.min_dim)
        maximum: Callable[..., Any] = staticmethod(jax.core.max_dim)
        sym_sum: Callable[..., Any] = staticmethod(sum)

    return OnDimensions


def shown(shape: Sequence[Any]) -> list[Any]:
    """A shape for people and JSON: open sizes as text."""
    return [n if isinstance(n, int) else str(n) for n in shape]
