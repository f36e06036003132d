"""Forms of a call that a row need not spell out: other memory layouts, in-place and ``out=``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tests.ops.compare import tensors
from tests.ops.row import Make, Row, Sample, key_of
from torchtpu.graph.functional import functional_overload


@dataclass(frozen=True)
class Form:
    """One way to call a row's operator: what is done to the arguments, and what is called."""

    name: str
    prepare: Callable[[Any], Any]
    run: Callable[[Sample], Any]


def forms(row: Row, dtype: torch.dtype) -> Iterator[tuple[str, Sample, Callable[[Sample], Any]]]:
    """Every call of a row in one dtype: all samples as they are; of the first, all other forms too."""
    for place, sample in enumerate(row.samples(Make(dtype))):
        yield f"sample {place}", sample, lambda s: row.op(*s.args, **s.kwargs)
        if place or row.reference is not None:
            continue
        if dtype == row.dtypes[0]:
            for name, change in (("strided", strided), ("channels_last", channels_last)):
                changed = tree_map(change, sample.args), tree_map(change, sample.kwargs)
                if any(a is not b for a, b in zip(tensors(changed), tensors((sample.args, sample.kwargs)), strict=True)):
                    yield name, Sample(*changed), lambda s: row.op(*s.args, **s.kwargs)
        for op in mutating(row.key):
            run = in_place(op, row, sample) if op._schema.name.endswith("_") else into_out(op, row, sample)
            if run is not None:
                yield key_of(op), sample, run


def strided(leaf: Any) -> Any:
    """The same values with gaps between them, dims in another order in memory."""
    if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0 or leaf.numel() == 0:
        return leaf
    order = [*range(1, leaf.dim()), 0]
    memory = torch.zeros([leaf.shape[d] for d in order[:-1]] + [2 * leaf.shape[0]], dtype=leaf.dtype)
    view = memory[..., 1::2].permute(leaf.dim() - 1, *range(leaf.dim() - 1))
    view.copy_(leaf)
    return view


def channels_last(leaf: Any) -> Any:
    """The same values with channels innermost, of a tensor of four dims."""
    if not isinstance(leaf, torch.Tensor) or leaf.dim() != 4:
        return leaf
    return leaf.clone(memory_format=torch.channels_last)


# PyTorch's own kernel of it writes to CPU memory whatever the device is; no public function calls it.
BROKEN = {"aten::range.out_"}


@functools.cache
def mutating(key: str) -> tuple[torch._ops.OpOverload, ...]:
    """In-place and ``out=`` overloads that the rule of ``key`` serves."""
    namespace, _, rest = key.partition("::")
    packet = rest.partition(".")[0]
    found = []
    for name in (packet, packet.removesuffix("_functional") + "_"):
        operators = getattr(getattr(torch.ops, namespace), name, None)
        for overload in operators.overloads() if operators else ():
            op = getattr(operators, overload)
            functional = functional_overload(op)
            if functional is not None and key_of(functional) == key and key_of(op) not in BROKEN:
                found.append(op)
    return tuple(found)


def in_place(op: torch._ops.OpOverload, row: Row, sample: Sample) -> Callable[[Sample], Any] | None:
    """The in-place form, if the result fits into the argument."""
    result = tensors(row.on_cpu(sample))
    written = [sample.args[i] for i, a in enumerate(op._schema.arguments[: len(sample.args)]) if a.is_write]
    into = tensors(written)
    if len(into) != len(result) or any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(into, result, strict=True)):
        return None

    def run(given: Sample) -> Any:
        args = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, given.args)
        op(*args, **given.kwargs)
        return [args[i] for i, a in enumerate(op._schema.arguments[: len(args)]) if a.is_write]

    return run


def into_out(op: torch._ops.OpOverload, row: Row, sample: Sample) -> Callable[[Sample], Any] | None:
    """The ``out=`` form, writing into tensors with gaps: its strides are kept and the gaps are left alone."""
    names = [a.name for a in op._schema.arguments if a.is_out]
    factory = {"dtype", "layout", "device", "pin_memory"}
    results = row.on_cpu(sample)
    results = list(results) if isinstance(results, tuple | list) else [results]
    if len(results) != len(names) or any(not isinstance(result, torch.Tensor) for result in results):
        return None
    if any(a.is_write and not a.is_out for a in op._schema.arguments):
        return None

    def run(given: Sample) -> Any:
        device = next((t.device for t in tensors(given.args)), torch.device("cpu"))
        device = given.kwargs.get("device", device)
        memory = [torch.zeros((*r.shape, 2), dtype=r.dtype, device=device) for r in results]
        known = {a.name for a in op._schema.arguments}
        kwargs = {k: v for k, v in given.kwargs.items() if k in known or k not in factory}
        op(*given.args, **kwargs, **{name: m[..., 0] for name, m in zip(names, memory, strict=True)})
        return memory

    return run
