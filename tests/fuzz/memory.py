"""Questions about where the elements of tensors lie."""

from __future__ import annotations

import torch


def overlaps(t: torch.Tensor) -> bool:
    """Whether two elements lie in one place."""
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        places = (places[:, None] + torch.arange(size) * stride).flatten()
    return len(places.unique()) < len(places)


def share_in_part(t: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are different views of one storage."""
    same = t.untyped_storage()._cdata == other.untyped_storage()._cdata
    return same and (t.dtype, t.shape, t.stride(), t.storage_offset()) != (
        other.dtype, other.shape, other.stride(), other.storage_offset())
