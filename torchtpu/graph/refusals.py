"""Arguments that the CPU refuses and fakes let pass: refused here, on the user's line.

What depends on values (an index out of bounds, a negative probability) is not looked at: the values are not there yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchtpu.graph import promotion, refused_draws, refused_dtypes, refused_layouts
from torchtpu.graph.arguments import HostScalar, TensorArgument
from torchtpu.graph.overloads import key_of
from torchtpu.graph.refused_dtypes import Check, Named, refuse, tensors

_INDEX_NAMES = ("index", "indices")


def check(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """Refuse what the CPU refuses.

    Raises:
        UnsupportedDtypeError: floats where integers are needed, numbers where a mask is, products of several dtypes.
        RuntimeError: the extreme of nothing, shapes that do not belong together.
        IndexError: a dimension that does not exist.
    """
    if key_of(op) in _OUT_CHECKS:
        _OUT_CHECKS[key_of(op)](op, arguments)
    named = {a.name: value for a, value in zip(op._schema.arguments, arguments, strict=True) if not a.is_out}
    for name in _INDEX_NAMES:
        if isinstance(named.get(name), TensorArgument):
            refuse(op, [named[name]], _is_inexact, "integers as indices", "Places are whole numbers.", "Use .long().")
    checker = _CHECKS.get(op._schema.name.partition("::")[2].rstrip("_"))
    if checker is not None:
        checker(op, named)


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _integral(op: torch._ops.OpOverload, named: Named) -> None:
    refuse(op, tensors(named), _is_inexact, "integers or bools", "Bits of floats have no such meaning.",
            "Use .to(torch.int32), or .view(torch.int32) for the bits themselves.")


def _masked(op: torch._ops.OpOverload, named: Named) -> None:
    mask = [named["mask"]] if isinstance(named["mask"], TensorArgument) else []
    refuse(op, mask, lambda dtype: dtype != torch.bool, "a mask of bools", "A mask selects.", "Use mask.bool().")
    if "value" in named:
        refused_dtypes.real_number(op, named)


def _same_dtype(op: torch._ops.OpOverload, named: Named) -> None:
    first, *others = (v for v in named.values() if isinstance(v, TensorArgument | HostScalar))
    if op._schema.overload_name.startswith("dtype"):
        return
    refuse(op, [t for t in others if isinstance(t, TensorArgument)], lambda dtype: dtype != first.dtype,
            f"tensors of one dtype, {first.dtype}", "Dtypes are not promoted here.", "Convert one of them with .to().")


def _extreme(op: torch._ops.OpOverload, named: Named) -> None:
    if not op._schema.overload_name.replace("unary_out", "") and 0 in named["self"].sizes:
        raise RuntimeError(
            f"{key_of(op)}: Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument.")
    refused_dtypes.ordered(op, named)


def _extremes(op: torch._ops.OpOverload, named: Named) -> None:
    """The extreme of nothing, along dims."""
    sizes, dims = named["self"].sizes, named["dim"]
    dims = [dims] if isinstance(dims, int) else list(dims or ())
    name = op._schema.name.partition("::")[2]
    if not dims and 0 in sizes:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument.")
    for dim in dims:
        if -len(sizes) <= dim < len(sizes) and sizes[dim] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")
    refused_dtypes.ordered(op, named)


def _bins(op: torch._ops.OpOverload, named: Named) -> None:
    if len(named["bins"]) != named["self"].sizes[-1]:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")


def _narrow_copy(op: torch._ops.OpOverload, named: Named) -> None:
    if named["dim"] >= len(named["self"].sizes):  # an IndexError everywhere else
        raise RuntimeError(f"narrow_copy: Expected dim < {len(named['self'].sizes)}, but got {named['dim']}")


def _exact_out(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """Operators that do not convert what they write."""
    first = arguments[0].dtype
    wanted = first if key_of(op) == "aten::aminmax.out" else first.to_complex()
    for argument, parsed in zip(op._schema.arguments, arguments, strict=True):
        if argument.is_out and parsed.dtype != wanted:
            raise RuntimeError(f"Expected out tensor to have dtype {wanted}, but got {parsed.dtype} instead")


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
    refuse(
        op, [weights], lambda dtype: not dtype.is_floating_point, "floats as weights", "They are probabilities.", "Use .float().")
    if count <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not weights.sizes or len(weights.sizes) > 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not named["replacement"] and count > weights.sizes[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")


def _bucketize(op: torch._ops.OpOverload, named: Named) -> None:
    if len(named["boundaries"].sizes) != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({len(named['boundaries'].sizes)})")


def _index(op: torch._ops.OpOverload, named: Named) -> None:
    """A place along a dimension of size 0."""
    indices = [(dim, index) for dim, index in enumerate(named["indices"]) if isinstance(index, TensorArgument)]
    if all(index.dtype not in (torch.bool, torch.uint8) and 0 not in index.sizes for _, index in indices) and any(
            dim < len(named["self"].sizes) and named["self"].sizes[dim] == 0 for dim, _ in indices):
        raise IndexError("index is out of bounds for dimension with size 0")


def _index_along(op: torch._ops.OpOverload, named: Named) -> None:
    """A place along a dimension of size 0, or several of a number."""
    sizes, index = named["self"].sizes, named["index"].sizes
    _dim(op, named)
    if not sizes and op._schema.name == "aten::index_select" and math.prod(index) > 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {math.prod(index)} value(s)")
    if sizes and sizes[named["dim"]] == 0 and 0 not in index:
        kind = IndexError if op._schema.name.startswith("aten::index_copy") else RuntimeError
        raise kind(f"{key_of(op)}: index 0 is out of bounds for dimension {named['dim']} with size 0")


def _index_fill(op: torch._ops.OpOverload, named: Named) -> None:
    _index_along(op, named)
    refused_dtypes.real_number(op, named)


def _embedding(op: torch._ops.OpOverload, named: Named) -> None:
    if named["weight"].sizes[:1] == (0,) and 0 not in named["indices"].sizes:
        raise RuntimeError("index_select(): self indexing axis dim should be positive")


def _max_pool2d(op: torch._ops.OpOverload, named: Named) -> None:
    if len(named["self"].sizes) not in (3, 4):
        raise RuntimeError("non-empty 3D or 4D (batch mode) tensor expected for input")


def _fractional_max_pool3d(op: torch._ops.OpOverload, named: Named) -> None:
    sizes, samples = named["self"].sizes, named["random_samples"].sizes
    if len(sizes) not in (4, 5) or len(samples) != 3:
        return  # PyTorch's own inference knows that
    *batch, channels = sizes[:-3]
    images, per_image, _ = samples
    if images < (batch[0] if batch else 1):
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if per_image != channels:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")


def _cat(op: torch._ops.OpOverload, named: Named) -> None:
    for place, tensor in enumerate(named["tensors"]):
        if not tensor.sizes:
            raise RuntimeError(f"zero-dimensional tensor (at position {place}) cannot be concatenated")


def _joined_into(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    joined, _, out = arguments
    common = promotion.common_dtype(joined)
    if not torch.can_cast(common, out.dtype):
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {out.dtype}")


# By overload, with all arguments: what is written matters too.
_OUT_CHECKS: dict[str, Callable[[torch._ops.OpOverload, list[Any]], None]] = {
    "aten::cat.out": _joined_into,
    **dict.fromkeys(("aten::aminmax.out", "aten::complex.out", "aten::polar.out"), _exact_out),
    **dict.fromkeys(("aten::randperm.out", "aten::randperm.generator_out"), refused_draws.permutation),
}
_CHECKS: dict[str, Check] = {
    **refused_dtypes.CHECKS,
    **refused_draws.CHECKS,
    **refused_layouts.CHECKS,
    **dict.fromkeys((
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm",
        "__lshift", "__rshift", "__ilshift", "__irshift",
    ), _integral),
    **dict.fromkeys((
        "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "_addmm_activation", "convolution", "complex",
        "polar",
    ), _same_dtype),
    **dict.fromkeys(("masked_fill", "masked_scatter"), _masked),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("amax", "amin", "aminmax"), _extremes),
    **dict.fromkeys(("_histogramdd_bin_edges", "_histogramdd_from_bin_cts"), _bins),
    **dict.fromkeys(("_softmax", "_log_softmax"), _dim),
    **dict.fromkeys(("index", "index_put", "_index_put_impl"), _index),
    **dict.fromkeys(("index_select", "gather", "index_copy", "scatter", "scatter_add"), _index_along),
    "index_fill": _index_fill,
    "embedding": _embedding,
    "max_pool2d_with_indices": _max_pool2d,
    "fractional_max_pool3d": _fractional_max_pool3d,
    "cat": _cat,
    "narrow_copy": _narrow_copy,
    "index_add": _index_add,
    "multinomial": _multinomial,
    "bucketize": _bucketize,
}
