"""CPU tensors that follow those of the device: each storage has a shadow, and views of the one are views of the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass
class Errors:
    """The largest differences between the device and the CPU; relative to the CPU's value of the same element."""

    absolute: float = 0.0
    relative: float = 0.0


@dataclass
class _Shadow:
    reference: StorageWeakRef  # while it is held, the address is not given to another storage
    storage: torch.UntypedStorage
    errors: Errors


class Shadows:
    """The shadow of every storage seen so far, as long as it lives."""

    def __init__(self) -> None:
        self._known: dict[int, _Shadow] = {}
        self._purge_at = 256

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The CPU tensor that stands for a tensor of the device; a copy of its storage, the first time."""
        shadow = self._find(tensor)
        if shadow is None:
            shadow = self._add(tensor, _bytes_of(tensor).cpu().untyped_storage())
        result = torch.empty(0, dtype=tensor.dtype).set_(
            shadow.storage, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))  # type: ignore[call-overload]
        result = torch._conj(result) if tensor.is_conj() else result
        return torch._neg_view(result) if tensor.is_neg() else result

    def follow(self, tensor: torch.Tensor, expected: torch.Tensor) -> None:
        """A new tensor of the device, and what the CPU computed for it; nothing where its storage is known: the shadow is, too."""
        if self._find(tensor) is None:
            laid_out = torch.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8).untyped_storage()
            self._add(tensor, laid_out)
            self.of(tensor).copy_(expected)

    def forget(self, tensor: torch.Tensor) -> None:
        """Take the device's value the next time."""
        self._known.pop(StorageWeakRef(tensor.untyped_storage()).cdata, None)

    def errors(self, tensor: torch.Tensor) -> Errors:
        """What `note` said last of the storage; nothing, if it never did."""
        shadow = self._find(tensor)
        return shadow.errors if shadow is not None else Errors()

    def note(self, tensor: torch.Tensor, errors: Errors) -> None:
        """Remember how far the two are apart."""
        shadow = self._find(tensor)
        assert shadow is not None, "noted before it was followed"
        shadow.errors = errors

    def _find(self, tensor: torch.Tensor) -> _Shadow | None:
        return self._known.get(StorageWeakRef(tensor.untyped_storage()).cdata)

    def _add(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> _Shadow:
        if len(self._known) >= self._purge_at:
            self._known = {key: shadow for key, shadow in self._known.items() if not shadow.reference.expired()}
            self._purge_at = max(256, 2 * len(self._known))
        reference = StorageWeakRef(tensor.untyped_storage())
        self._known[reference.cdata] = _Shadow(reference, storage, Errors())
        return self._known[reference.cdata]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage, as bytes."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))  # type: ignore[call-overload]
