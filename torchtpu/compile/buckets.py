"""Running a region at the sizes of buckets: what comes in is padded, and of what comes out the valid entries are handed on.

Padding and region are programs of their own: that of the region has the sizes of buckets only, and is shared by all sizes of a
bucket. A tensor that is padded already, as the results of another region are, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import sympy
import torch

from torchtpu import _C
from torchtpu.compile import padding, region, shapes
from torchtpu.compile.results import output_values
from torchtpu.runtime.counters import counters

_REASON = "bucket of sizes"
_Known = dict[sympy.Expr, int]


class Buckets:
    """The sizes that one graph has been run with, and its padded graph once there were many of them."""

    def __init__(self, module: torch.fx.GraphModule, symbols: Iterable[sympy.Expr]) -> None:
        self.module = module
        given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        self.tensors = [value for value in given if isinstance(value, torch.Tensor)]
        self.symbols = list(symbols)
        self.outputs = output_values(module.graph)
        self.exact: set[tuple[int, ...]] = set()
        self.refusals: list[Exception] = []
        self._padded: padding.Padded | None = None
        self._name = ""

    def run(self, tensors: list[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor] | None:
        """The tensors that the graph returns; None where it is to be run at these very sizes.

        Raises:
            PaddingError: the policy is strict, and the graph cannot be padded.
            ShapePolicyError: the policy's buckets are smaller than their sizes.
        """
        larger = self._larger(tuple(sizes))
        if larger is None or any(_C.state(t) == "abstract" for t in tensors if t.device.type == "tpu"):
            return None
        padded = self._padded
        assert padded is not None
        known, wide = (dict(zip(self.symbols, values, strict=True)) for values in (sizes, larger))
        device = next(t.device.index for t in tensors if t.device.type == "tpu")
        with torch.no_grad():
            inputs = [_grown(t, _at(value.shape, wide)) for t, value in zip(tensors, self.tensors, strict=True)]
            inputs += [_number(number, known) for number in padded.numbers]
            _C.flush(device, _REASON)
            made = torch.ops.torchtpu.region(self._name, inputs, larger)
            _C.flush(device, _REASON)
            del inputs
            layouts = zip(*padded.outputs, strict=True)
            return [self._valid(*each, known, wide) for each in zip(made, self.outputs, layouts, strict=True)]

    def _larger(self, sizes: tuple[int, ...]) -> list[int] | None:
        """The sizes to run with; None: these."""
        policy = shapes.shape_policy()
        if policy.buckets is None or sizes in self.exact:
            return None
        if len(self.exact) < policy.exact:
            self.exact.add(sizes)
            return None
        if self._padded is None:
            self._prepare()
        assert self._padded is not None
        if policy.strict and self.refusals:
            raise self.refusals[0]
        buckets = [policy.bucket(n) if s in self._padded.symbols else None for s, n in zip(self.symbols, sizes, strict=True)]
        if all(bucket is None for bucket in buckets):
            return None
        wide = [n if bucket is None else bucket for n, bucket in zip(sizes, buckets, strict=True)]
        plain = {s: n for s, n in zip(self.symbols, wide, strict=True) if s.is_Symbol}
        return [_value(s, plain) if s.free_symbols <= plain.keys() else n for s, n in zip(self.symbols, wide, strict=True)]

    def _prepare(self) -> None:
        """Sizes may also come as expressions: these must follow from plain ones, or what they hold stays exact."""
        plain = {s for s in self.symbols if s.is_Symbol}
        stuck = set().union(*(s.free_symbols for s in self.symbols if not s.free_symbols <= plain))
        self._padded, refusals = padding.pad(self.module, [s for s in self.symbols if s in plain - stuck])
        self.refusals = list(refusals)
        counters.unpadded.update(str(refusal.fields["op"]) for refusal in refusals)
        self._name = region.register(self._padded.module)

    def _valid(
        self, made: torch.Tensor, promised: torch.Tensor, layouts: Sequence[padding.Layout], known: _Known, wide: _Known
    ) -> torch.Tensor:
        """The valid entries as a tensor of the promised strides: over the memory of ``made`` if they lie there like that."""
        assert self._padded is not None
        part, now = made, wide
        for symbol, layout in zip(self._padded.symbols, layouts, strict=True):
            before, now = now, now | {symbol: known[symbol]}
            for dim, padded in enumerate(layout):
                if padded is not None:
                    part = _cut(part, dim, padded, before, now)
        shape, strides = _at(promised.shape, known), _at(promised.stride(), known)
        if any(n > 1 and have != want for n, have, want in zip(shape, part.stride(), strides, strict=True)):
            part = torch.empty_strided(shape, strides, dtype=made.dtype, device=made.device).copy_(part)
        # Not a view in the eyes of autograd, which has rules of its own for these.
        tensor = torch.empty(0, dtype=made.dtype, device=made.device)
        return tensor.set_(part.untyped_storage(), part.storage_offset(), shape, strides)


def _cut(tensor: torch.Tensor, dim: int, padded: padding.Padding, before: _Known, now: _Known) -> torch.Tensor:
    """One dimension without its padding, which is gone ``now``."""
    outer, extent, inner, valid = _at((padded.outer, padded.extent, padded.inner), before) + _at((padded.extent,), now)
    if outer == 1:
        return tensor.narrow(dim, 0, valid * inner)
    return tensor.unflatten(dim, (outer, extent, inner)).narrow(dim + 1, 0, valid).flatten(dim, dim + 2)


def _at(sizes: Sequence[Any], known: _Known) -> tuple[int, ...]:
    """Sizes as numbers."""
    return tuple(_value(padding.expr(n), known) for n in sizes)


def _value(size: sympy.Expr, known: _Known) -> int:
    return int(cast(Any, size.xreplace(known)))


def _number(number: sympy.Expr, known: _Known) -> torch.Tensor:
    return torch.tensor(_value(number, known), dtype=torch.int32)


def _grown(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of this shape that begins with ``tensor`` along each dimension: over its own memory if that is just so large."""
    if tuple(tensor.shape) == shape:
        return tensor
    whole = torch.empty(shape, dtype=tensor.dtype, device="meta")
    fits = tensor.untyped_storage().nbytes() == whole.nbytes and tensor.storage_offset() == 0
    if fits and tensor.stride() == whole.stride():
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage(), 0, shape, whole.stride())
    amounts = [n for have, want in zip(reversed(tensor.shape), reversed(shape), strict=True) for n in (0, want - have)]
    return _filled_up(tensor, amounts)


def _filled_up(tensor: torch.Tensor, amounts: list[int]) -> torch.Tensor:
    return torch.constant_pad_nd(tensor, amounts)
