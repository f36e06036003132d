"""Parameters, buffers and constants of an exported program: each memory once, whatever its names."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from torchtpu import dtypes
from torchtpu.errors import ExportError, MissingPackageError

# What safetensors' NumPy side reads as it is; the bytes of other dtypes are stored as uint8.
_STORABLE = {
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
}


class Weights:
    """The weights of a program.

    Attributes:
        stored_as: from every name to the one under which the value is stored.
        values: the values, by these.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.stored_as: dict[str, str] = {}
        self.values: dict[str, torch.Tensor] = {}
        self._kinds: dict[str, str] = {}
        first: dict[Any, str] = {}
        for spec in program.graph_signature.input_specs:
            if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                continue
            name = spec.target
            assert name is not None
            value = program.state_dict[name] if name in program.state_dict else program.constants[name]
            assert isinstance(value, torch.Tensor)  # of these kinds of inputs
            self._kinds[name] = spec.kind.name.lower().removesuffix("_tensor")
            self.stored_as[name] = first.setdefault(_identity(value), name)
            self.values.setdefault(self.stored_as[name], value)

    def refuse_tied(self, mutated: set[str | None]) -> None:
        """Refuse the mutation of a weight that has another name: the graph would read the old value under that one."""
        counts = Counter(self.stored_as.values())
        for name in sorted(n for n in mutated if n is not None):
            if counts[self.stored_as[name]] > 1:
                raise ExportError(
                    what=f"Buffer {name}, which is mutated and tied to another,", where="",
                    why="Each value of a portable program has one name.", fix="Untie them before torch.export.export.")

    def described(self) -> dict[str, Any]:
        """Of every name, what it is and where its value lies, as JSON."""
        return {
            name: {
                "kind": self._kinds[name], "stored_as": stored, "shape": list(self.values[stored].shape),
                "dtype": dtypes.to_numpy(self.values[stored].dtype).name}
            for name, stored in sorted(self.stored_as.items())}


def _identity(value: torch.Tensor) -> Any:
    """Equal for tensors that look at one memory in one way."""
    if isinstance(value, FakeTensor) or not value.numel():
        return id(value)
    return value.device, value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride()), value.is_conj(), value.is_neg()


def write(weights: dict[str, torch.Tensor], path: str) -> None:
    """Write the values as a safetensors file.

    Raises:
        ExportError: a weight has no value, because it is fake or abstract.
    """
    from safetensors.torch import save_file

    save_file({name: _storable(name, value) for name, value in weights.items()}, path)


def require_packages() -> None:
    """Refuse to begin where saving would fail for want of a package.

    Raises:
        MissingPackageError: safetensors, or the package that JAX writes programs with, is not installed.
    """
    for name in ("safetensors", "flatbuffers"):
        if importlib.util.find_spec(name) is None:
            raise MissingPackageError(what="torchtpu.export.save", package=name, extra="export")


def _storable(name: str, value: torch.Tensor) -> torch.Tensor:
    if isinstance(value, FakeTensor) or value.device.type == "meta":
        raise ExportError(
            what=f"Weight {name}", where="", why="It is a fake tensor, which has a shape and a dtype but no value.",
            fix="Load the weights first; compile_for() needs none.")
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.untyped_storage().nbytes() != plain.nbytes:  # a view of something larger
        plain = plain.clone()
    return plain if plain.dtype in _STORABLE else plain.reshape(-1).view(torch.uint8)
