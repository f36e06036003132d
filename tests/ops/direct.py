"""A rule without the recorder: what the recorder would be told of a call, and the rule's results for given arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tests.ops.row import Row, Sample
from torchtpu import dtypes
from torchtpu.graph.resolve import Answer, resolve

_NUMBER_OF = {dtype: number for number, dtype in dtypes.FROM_NUMBER.items()}
_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
_PLAIN = {"bfloat16": np.int16}  # torch reads no bfloat16 from NumPy
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}


def is_reached(row: Row) -> bool:
    """Whether a call of the row's operator is recorded as itself: others are split into several by PyTorch."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(row.key, "PrivateUse1")


class Direct:
    """One call: every tensor has a buffer of its own, every number that stands for a tensor is a run-time one."""

    def __init__(self, row: Row, sample: Sample) -> None:
        self.tensors: list[torch.Tensor] = []
        self.numbers: list[Any] = []
        schema = row.op._schema.arguments
        given = {a.name: value for a, value in zip(schema, sample.args, strict=False)} | sample.kwargs
        sent = [self._send(a, given.get(a.name, a.default_value)) for a in schema]
        buffers = [(t.dtype, (t.untyped_storage().nbytes() // t.itemsize,), t.untyped_storage().nbytes()) for t in self.tensors]
        with jax.enable_x64(True):
            self.answer: Answer = resolve(row.key, sent, buffers)

    def traced(self) -> list[tuple[tuple[int, ...], Any]]:
        """Shape and dtype of each result in memory, by ``jax.eval_shape``."""
        with jax.enable_x64(True):
            arrays = [
                jax.ShapeDtypeStruct((t.untyped_storage().nbytes() // t.itemsize,), dtypes.to_numpy(t.dtype)) for t in self.tensors
            ]
            numbers = [jax.ShapeDtypeStruct((), d) for d in self.answer.lowering.slot_dtypes]
            words = jax.ShapeDtypeStruct((self.answer.num_draws, 4), jnp.uint32) if self.answer.num_draws else None
            return [(r.shape, r.dtype) for r in jax.eval_shape(self.answer.lowering, arrays, numbers, words)]

    def apply(self) -> list[torch.Tensor]:
        """The results for the call's own tensors, in logical order of their dims."""
        with jax.enable_x64(True):
            arrays = [jnp.asarray(self._memory(t)) for t in self.tensors]
            numbers = [jnp.asarray(n, d) for n, d in zip(self.numbers, self.answer.lowering.slot_dtypes, strict=True)]
            results = self.answer.lowering.jitted(arrays, numbers, None)
        found = []
        for result, (_, _, strides, *_), output in zip(results, self.answer.outputs, self.answer.lowering.outputs, strict=False):
            memory = torch.from_numpy(np.array(result).view(_PLAIN.get(result.dtype.name, result.dtype)))
            dtype = dtypes.to_torch(result.dtype)
            memory = memory.view(dtype) if memory.dtype != dtype else memory
            found.append(memory.reshape(-1).as_strided(output.shape, strides))
        return found

    @staticmethod
    def _memory(tensor: torch.Tensor) -> np.ndarray:
        flat = tensor.new_empty(0).set_(tensor.untyped_storage())
        if tensor.dtype == torch.bfloat16:
            return flat.view(torch.int16).numpy().view(dtypes.to_numpy(torch.bfloat16))
        return flat.numpy()

    def recorded(self) -> list[tuple[tuple[int, ...], Any]]:
        """Shape and dtype of each result in memory, as the recorder keeps them."""
        fresh = [(tuple(o[3]), dtypes.to_numpy(o[0])) for o in self.answer.outputs]
        return fresh + [(tuple(shape), dtypes.to_numpy(dtype)) for _, dtype, shape in self.answer.mutations]

    def _send(self, argument: Any, value: Any) -> Any:
        if str(argument.type) == "Tensor" and type(value) in _NUMBERS:
            self.numbers.append(value)
            return ("host", _NUMBERS[type(value)], True)
        if argument.N and type(value) is int:  # one number stands for all
            value = [value] * argument.N
        return self._plain(value)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return (
                "tensor", len(self.tensors) - 1, value.dtype, tuple(value.shape), tuple(value.stride()), value.storage_offset(),
                value.is_conj(), value.is_neg())
        if isinstance(value, torch.dtype):
            return _NUMBER_OF[value]
        if isinstance(value, torch.memory_format):
            return _MEMORY_FORMATS[value]
        return None if isinstance(value, torch.device) else value
