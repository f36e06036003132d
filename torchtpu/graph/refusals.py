"""Arguments that the CPU refuses and fakes let pass: refused here, on the user's line.

What depends on values (an index out of bounds, a negative probability) is not looked at: the values are not there yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchtpu.errors import UnsupportedDtypeError
from torchtpu.graph.arguments import HostScalar, TensorArgument, leaves
from torchtpu.graph.overloads import key_of

Named = dict[str, Any]  # parsed arguments by name, without those that are only written
Check = Callable[[torch._ops.OpOverload, Named], None]
_INDEX_NAMES = ("index", "indices")


def check(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """Refuse what the CPU refuses.

    Raises:
        UnsupportedDtypeError: floats where integers are needed, numbers where a mask is, products of several dtypes.
        RuntimeError: the extreme of nothing, shapes that do not belong together.
        IndexError: a dimension that does not exist.
    """
    named = {a.name: value for a, value in zip(op._schema.arguments, arguments, strict=True) if not a.is_out}
    for name in _INDEX_NAMES:
        if isinstance(named.get(name), TensorArgument):
            _refuse(op, [named[name]], _is_inexact, "integers as indices", "Places are whole numbers.", "Use .long().")
    checker = _CHECKS.get(op._schema.name.partition("::")[2].rstrip("_"))
    if checker is not None:
        checker(op, named)


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _tensors(named: Named) -> list[TensorArgument]:
    return [leaf for leaf in leaves(named.values()) if isinstance(leaf, TensorArgument)]


def _refuse(op: torch._ops.OpOverload, tensors: list[TensorArgument], wrong: Callable[[torch.dtype], bool], expected: str, why: str,
            fix: str) -> None:
    for tensor in tensors:
        if wrong(tensor.dtype):
            raise UnsupportedDtypeError(op=key_of(op), expected=expected, got=str(tensor.dtype), why=why, fix=fix)


def _integral(op: torch._ops.OpOverload, named: Named) -> None:
    _refuse(op, _tensors(named), _is_inexact, "integers or bools", "Bits of floats have no such meaning.",
            "Use .to(torch.int32), or .view(torch.int32) for the bits themselves.")


def _masked(op: torch._ops.OpOverload, named: Named) -> None:
    mask = [named["mask"]] if isinstance(named["mask"], TensorArgument) else []
    _refuse(op, mask, lambda dtype: dtype != torch.bool, "a mask of bools", "A mask selects.", "Use mask.bool().")


def _same_dtype(op: torch._ops.OpOverload, named: Named) -> None:
    first, *others = (v for v in named.values() if isinstance(v, TensorArgument | HostScalar))
    if op._schema.overload_name.startswith("dtype"):
        return
    _refuse(op, [t for t in others if isinstance(t, TensorArgument)], lambda dtype: dtype != first.dtype,
            f"tensors of one dtype, {first.dtype}", "Dtypes are not promoted here.", "Convert one of them with .to().")


def _extreme(op: torch._ops.OpOverload, named: Named) -> None:
    if not op._schema.overload_name.replace("unary_out", "") and 0 in named["self"].sizes:
        raise RuntimeError(
            f"{key_of(op)}: Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument.")


def _dim(op: torch._ops.OpOverload, named: Named) -> None:
    ndim = max(len(named["self"].sizes), 1)
    if not -ndim <= named["dim"] < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {named['dim']})")


def _index_add(op: torch._ops.OpOverload, named: Named) -> None:
    target, source, dim = list(named["self"].sizes), list(named["source"].sizes), named["dim"]
    if target and source and -len(target) <= dim < len(target) and len(source) == len(target):
        del target[dim], source[dim]
    if target != source and target and source:
        raise RuntimeError(
            f"{key_of(op)}: source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(named['self'].sizes)} source.shape = {list(named['source'].sizes)}")


def _multinomial(op: torch._ops.OpOverload, named: Named) -> None:
    weights, count = named["self"], named["num_samples"]
    _refuse(
        op, [weights], lambda dtype: not dtype.is_floating_point, "floats as weights", "They are probabilities.", "Use .float().")
    if count <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not weights.sizes or len(weights.sizes) > 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not named["replacement"] and count > weights.sizes[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")


def _uniform(op: torch._ops.OpOverload, named: Named) -> None:
    if named["from"] > named["to"]:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={named['from']} > to={named['to']}")


def _bucketize(op: torch._ops.OpOverload, named: Named) -> None:
    if len(named["boundaries"].sizes) != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({len(named['boundaries'].sizes)})")


_CHECKS: dict[str, Check] = {
    **dict.fromkeys((
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm",
    ), _integral),
    **dict.fromkeys((
        "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "_addmm_activation", "convolution", "complex",
        "polar",
    ), _same_dtype),
    **dict.fromkeys(("masked_fill", "masked_scatter"), _masked),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("_softmax", "_log_softmax"), _dim),
    "index_add": _index_add,
    "multinomial": _multinomial,
    "uniform": _uniform,
    "bucketize": _bucketize,
}
