"""Gradients of every differentiable row: on the device as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from tests.ops.compare import TOLERANCE, tensors, to_device, unequal, widened
from tests.ops.compare import error as error_of
from tests.ops.row import Make, Row, Sample
from tests.ops.tables import ROWS

LOOSER = 10  # times the tolerance of values: a gradient is a longer computation
DIFFERENTIABLE = [row for row in ROWS if row.grads]


def gradients(row: Row, sample: Sample, on_cpu: bool) -> tuple[torch.Tensor | None, ...]:
    """Gradients of a fixed weighted sum of all results, for every floating argument."""
    names = [a.name for a in row.op._schema.arguments]
    given = dict(zip(names, sample.args, strict=False)) | sample.kwargs
    wanted = given.values() if row.grads is True else [given[name] for name in row.grads or ()]
    inputs = [t.requires_grad_() for t in tensors(list(wanted)) if t.is_floating_point() or t.is_complex()]
    results: Any = row.on_cpu(sample) if on_cpu else row.op(*sample.args, **sample.kwargs)
    total: Any = None
    for result in tensors(results):
        if result.requires_grad:
            weights = torch.cos(torch.arange(result.numel(), dtype=torch.float64)).reshape(result.shape)
            part = (result * weights.to(result.dtype).to(result.device)).sum()
            part = torch.real(part) if part.is_complex() else part
            total = part if total is None else total + part.to(total.dtype)
    return torch.autograd.grad(total, inputs, allow_unused=True) if total is not None else (None,) * len(inputs)


def detached(sample: Sample) -> Sample:
    """The call on leaves of its own."""
    made: dict[int, torch.Tensor] = {}

    def cut(leaf: Any) -> Any:
        return made.setdefault(id(leaf), leaf.detach().clone()) if isinstance(leaf, torch.Tensor) else leaf

    return Sample(*tree_map(cut, (sample.args, sample.kwargs)))


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.key)
def test_grads(row: Row) -> None:
    dtype = next(d for d in row.dtypes if d.is_floating_point or d.is_complex)
    pending = []
    for place, sample in enumerate(row.samples(Make(dtype))):
        if not tensors((sample.args, sample.kwargs)):
            continue
        expected = gradients(row, detached(sample), on_cpu=True)
        pending.append((place, sample, expected, gradients(row, Sample(*to_device((sample.args, sample.kwargs))), on_cpu=False)))
    rtol, atol = row.tolerance.get(dtype) or TOLERANCE[dtype]
    loose = {**TOLERANCE, dtype: (LOOSER * rtol, LOOSER * atol)}
    problems = []
    for place, sample, expected, got in pending:
        for argument, (want, have) in enumerate(zip(expected, got, strict=True)):
            where = f"sample {place}, gradient {argument}"
            if (want is None) != (have is None):
                problems.append(f"{where}: there is {'none' if have is None else 'one'} where the CPU has {want}")
            elif want is not None and have is not None:
                what = unequal(have.cpu(), want, loose)
                if what and not referee_accepts(row, sample, argument, have.cpu(), want):
                    problems.append(f"{where}: {what}")
    reason = row.expected_failure(dtype, "grads")
    if reason:
        assert problems, f"passes now, though it was expected to fail: {reason}"
        return
    assert not problems, "\n".join(problems)


def referee_accepts(row: Row, sample: Sample, argument: int, have: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether float64 says that our gradient is not worse than the CPU's."""
    exact = gradients(row, detached(widened(sample)), on_cpu=True)[argument]
    return exact is not None and error_of(exact, have) <= 2 * error_of(exact, want)
