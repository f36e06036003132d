"""Parameters of random draws that the CPU refuses: ranges that are empty or do not fit the dtype, probabilities beyond one."""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.graph.arguments import TensorArgument
from torchtpu.graph.overloads import key_of
from torchtpu.graph.refused_dtypes import Check, Named, refuse


def _largest(dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return 1
    return torch.finfo(dtype).max if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).max


def _smallest(dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return 0
    return torch.finfo(dtype).min if dtype.is_floating_point else torch.iinfo(dtype).min


def _floats(op: torch._ops.OpOverload, drawn: Any) -> None:
    refuse(op, [drawn], lambda dtype: not dtype.is_floating_point, "floats", "Such numbers are not whole.", "Use .float().")


def _uniform(op: torch._ops.OpOverload, named: Named) -> None:
    low, high, dtype = named["from"], named["to"], named["self"].dtype
    refuse(op, [named["self"]], lambda kind: not (kind.is_floating_point or kind.is_complex), "floats",
           "Such numbers are not whole.", "Use .random_(from, to) for whole numbers.")
    for name, value in (("from", low), ("to", high)):
        if not -_largest(dtype) <= value <= _largest(dtype):
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    if high - low > _largest(dtype):
        raise RuntimeError(f"uniform_ expects to-from <= {_largest(dtype)}, but found to={high} and from={low}")


def _random(op: torch._ops.OpOverload, named: Named) -> None:
    dtype = named["self"].dtype
    refuse(op, [named["self"]], lambda kind: kind.is_complex, "real numbers", "Whole numbers are real.",
           "Use torch.view_as_real(x).")
    low, high = named.get("from", 0), named.get("to")
    if high is None:
        high = int(_largest(dtype)) + 1
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not _smallest(dtype) <= value <= _largest(dtype):
            raise RuntimeError(f"{name} is out of bounds for {dtype}")


def _bernoulli(op: torch._ops.OpOverload, named: Named) -> None:
    probability = named.get("p", named["self"])
    if isinstance(probability, TensorArgument):
        _floats(op, probability)
    elif not 0 <= probability <= 1:
        raise RuntimeError(f"{key_of(op)}: expected p to be in [0, 1], but got p={probability}")


def permutation(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """A permutation has to fit into the tensor that it is written to; PyTorch makes that tensor where none is given.

    Raises:
        NotImplementedError: bools or complex numbers.
        RuntimeError: the dtype has not as many whole numbers.
    """
    n, dtype = arguments[0], arguments[-1].dtype
    if dtype == torch.bool or dtype.is_complex:
        raise NotImplementedError(f"{key_of(op)} is not implemented for {dtype}: a permutation is of whole numbers.")
    # Up to here every whole number is one of the dtype; the CPU lets bfloat16 repeat some.
    most = 2 / torch.finfo(dtype).eps + 1 if dtype in (torch.float16, torch.float32, torch.float64) else _largest(dtype) + 1
    if n > most:
        raise RuntimeError(f"{key_of(op)}: n cannot be greater than {most:.0f} for {dtype}, got {n}")


def _parameters(op: torch._ops.OpOverload, named: Named) -> None:
    _floats(op, named["self"])


CHECKS: dict[str, Check] = {
    "uniform": _uniform,
    "random": _random,
    "bernoulli": _bernoulli,
    **dict.fromkeys(("poisson", "_standard_gamma"), _parameters),
}
