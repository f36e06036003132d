"""Comparing the device's results with the CPU's, and with float64 where the two differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.ops.row import Row, Sample

# Relative and absolute, for results of the same precision computed in another order.
TOLERANCE = {
    torch.float64: (1e-7, 1e-9), torch.complex128: (1e-7, 1e-9), torch.float32: (2e-5, 2e-6), torch.complex64: (2e-5, 2e-6),
    torch.bfloat16: (1.6e-2, 1e-3), torch.float16: (2e-3, 1e-4),
}
REFEREE_FACTOR = 2  # our error against float64 may be this many times the CPU's
_WIDE = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128,
}


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors of nested results or arguments."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def to_device(tree: Any) -> Any:
    """A copy with every tensor on the device, strides and all; a tensor given twice stays one, and named devices are ours."""
    made: dict[int, torch.Tensor] = {}

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("tpu", 0)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in made:
            flat = leaf.new_empty(0).set_(leaf.untyped_storage()).to("tpu")
            made[id(leaf)] = flat.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset()).detach()
        return made[id(leaf)]

    return tree_map(move, tree)


def widened(sample: Sample) -> Sample:
    """The call in float64."""

    def wide(leaf: Any) -> Any:
        return leaf.to(_WIDE.get(leaf.dtype, leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf

    return Sample(tree_map(wide, sample.args), tree_map(wide, sample.kwargs))


def differences(row: Row, sample: Sample, expected: Any, got: Any, strides: bool = True) -> Iterator[str]:
    """What is wrong with the device's results: nothing, if all is well."""
    wanted, found = tensors(expected), tensors(got)
    if row.first_only:
        wanted, found = wanted[:1], found[:1]
    if len(wanted) != len(found):
        yield f"{len(found)} tensors where {len(wanted)} were expected"
        return
    for place, (want, have) in enumerate(zip(wanted, found, strict=True)):
        where = f"result {place}"
        if (have.dtype, have.shape) != (want.dtype, want.shape):
            yield f"{where} is {have.dtype}{list(have.shape)} where {want.dtype}{list(want.shape)} was expected"
            continue
        if strides and not row.no_strides and want.numel() and significant_strides(have) != significant_strides(want):
            yield f"{where} has strides {have.stride()} where {want.stride()} were expected"
        if not row.no_values:
            problem = unequal(have.cpu(), want, row.tolerance)
            if problem and not _referee_accepts(row, sample, place, have.cpu(), want):
                yield f"{where}: {problem}"


def unequal(have: torch.Tensor, want: torch.Tensor, tolerance: Mapping[torch.dtype, tuple[float, float]]) -> str:
    """How two tensors differ beyond the tolerance of their dtype; empty if they do not."""
    rtol, atol = tolerance.get(want.dtype) or TOLERANCE.get(want.dtype, (0, 0))
    try:
        torch.testing.assert_close(have.detach(), want.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def significant_strides(tensor: torch.Tensor) -> list[int]:
    """Strides of the dims that have more than one place: those of the others mean nothing."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _referee_accepts(row: Row, sample: Sample, place: int, have: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether float64 says that we are not worse than the CPU."""
    if want.dtype not in _WIDE:
        return False
    try:
        exact = tensors(row.on_cpu(widened(sample)))[place]
    except (RuntimeError, TypeError, IndexError):  # an operator without float64, or no result but what lies between
        return False
    ours, theirs = (error(exact, result) for result in (have, want))
    return ours <= REFEREE_FACTOR * theirs


def error(exact: torch.Tensor, result: torch.Tensor) -> float:
    """The largest error where the exact value is finite; infinite if infinities or NaNs are elsewhere."""
    result = result.detach().to(exact.dtype)
    finite = torch.isfinite(exact)
    if not torch.equal(finite, torch.isfinite(result)):
        return float("inf")
    return float((exact - result)[finite].abs().max()) if finite.any() else 0.0
