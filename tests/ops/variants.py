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
from torchtpu.rules import find_dynamic

# Kernels of PyTorch's own that do not work on any device but the CPU; no public function calls the first.
BROKEN = {
    "aten::range.out_": "writes to CPU memory whatever the device is",
    "aten::_stack.out": "warns that it resizes",
}


@dataclass(frozen=True)
class Form:
    """One way to call a row's operator."""

    name: str
    sample: Sample
    run: Callable[[Sample], Any]
    expected: Any
    fresh: bool = True  # results are new tensors, whose strides and values say something


def forms(row: Row, dtype: torch.dtype) -> Iterator[Form]:
    """Every call of a row in one dtype: all samples as they are; of the first, all other forms too."""
    for place, sample in enumerate(row.samples(Make(dtype))):
        expected = row.on_cpu(sample)
        yield Form(f"sample {place}", sample, functools.partial(functional, row), expected)
        if place or row.reference is not None or find_dynamic(row.key) is not None:
            continue
        if dtype == row.dtypes[0] and not row.dense:
            yield from layouts(row, sample)
        for op in mutating(row.key):
            form = in_place(op, sample, expected) if op._schema.name.endswith("_") else into_out(op, sample, expected)
            if form is not None:
                yield form


def functional(row: Row, sample: Sample) -> Any:
    """The operator itself."""
    return row.op(*sample.args, **sample.kwargs)


def layouts(row: Row, sample: Sample) -> Iterator[Form]:
    """The same values laid out otherwise in memory."""
    for name, change in (("strided", strided), ("channels_last", channels_last)):
        changed = Sample(tree_map(change, sample.args), tree_map(change, sample.kwargs))
        before, after = tensors((sample.args, sample.kwargs)), tensors((changed.args, changed.kwargs))
        if any(a is not b for a, b in zip(before, after, strict=True)):
            try:
                expected = row.on_cpu(changed)
            except RuntimeError:  # an operator that wants its arguments dense
                continue
            yield Form(name, changed, functools.partial(functional, row), expected)


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
            served = functional_overload(op)
            if served is not None and key_of(served) == key and key_of(op) not in BROKEN:
                found.append(op)
    return tuple(found)


def in_place(op: torch._ops.OpOverload, sample: Sample, expected: Any) -> Form | None:
    """The in-place form, if the result fits into the argument."""
    places = [i for i, a in enumerate(op._schema.arguments[: len(sample.args)]) if a.is_write]
    into, results = tensors([sample.args[i] for i in places]), tensors(expected)
    if len(into) != len(results) or any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(into, results, strict=True)):
        return None

    def run(given: Sample) -> Any:
        args = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, given.args)
        op(*args, **given.kwargs)
        return [args[i] for i in places]

    return Form(key_of(op), sample, run, expected, fresh=False)


def into_out(op: torch._ops.OpOverload, sample: Sample, expected: Any) -> Form | None:
    """The ``out=`` form, writing into tensors with gaps that are left alone."""
    names = [a.name for a in op._schema.arguments if a.is_out]
    results = list(expected) if isinstance(expected, tuple | list) else [expected]
    if len(results) != len(names) or any(not isinstance(result, torch.Tensor) for result in results):
        return None
    if any(a.is_write and not a.is_out for a in op._schema.arguments):
        return None
    known = {a.name for a in op._schema.arguments}

    def run(given: Sample) -> Any:
        device = given.kwargs.get("device") or next((t.device for t in tensors(given.args)), torch.device("tpu", 0))
        memory = [torch.zeros((*r.shape, 2), dtype=r.dtype, device=device) for r in results]
        kwargs = {k: v for k, v in given.kwargs.items() if k in known}
        op(*given.args, **kwargs, **{name: m[..., 0] for name, m in zip(names, memory, strict=True)})
        return [m[..., 0] for m in memory] + [m[..., 1] for m in memory]

    return Form(key_of(op), sample, run, [*results, *map(torch.zeros_like, results)], fresh=False)
