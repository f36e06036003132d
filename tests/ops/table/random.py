"""Rows of random operators: values are ours, so ranges, moments and metadata are what is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.ops.compare import tensors
from tests.ops.row import BOOL, F32, FLOATS, I64, Make, Row, Sample, Samples, call

HERE = torch.device("cpu")
RANDOM = "each device has a stream of its own"
SIZE = (64, 64)


def within(low: float, high: float, mean: float | None = None) -> Callable[[Any], None]:
    """All values in a range and, if a mean is given, near to it on the average."""

    def check(result: Any) -> None:
        for tensor in tensors(result):
            values = tensor.cpu().to(torch.float64)
            assert float(values.min()) >= low and float(values.max()) <= high
            assert len(values.unique()) > 1
            if mean is not None:
                near = 5 * float(values.std()) / values.numel() ** 0.5 + 1e-2
                assert abs(float(values.mean()) - mean) < near

    return check


def fill(*parameters: Any) -> Samples:
    return lambda t: [call(torch.zeros(SIZE, dtype=t.dtype), *parameters)]


def made(*leading: Any) -> Samples:
    return lambda t: [call(*leading, list(SIZE), dtype=t.dtype, device=HERE)]


def dropout(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(SIZE, dtype=t.dtype), 0.25, True)


def scaled_or_zero(result: Any) -> None:
    kept, mask = (x.cpu() for x in result)
    assert mask.dtype == torch.bool
    assert torch.equal(kept.float() != 0, mask)
    assert torch.allclose(kept[mask].float(), torch.tensor(4 / 3), rtol=1e-2)
    assert abs(float(mask.float().mean()) - 0.75) < 0.05


def a_permutation(result: torch.Tensor) -> None:
    values = result.cpu()
    assert values.sort().values.tolist() == list(range(len(values)))
    assert not torch.equal(values, torch.arange(len(values)))

def concentrations(t: Make) -> Iterator[Sample]:
    """All four approximations: near both ends, and in between with large and small parameters."""
    for low, high in ((0.1, 2), (2, 6), (7, 50)):
        alpha = t(40, low=low, high=high)
        yield call(torch.linspace(0.01, 0.99, 40).to(t.dtype), alpha, alpha + t(40, low=low, high=high))


INF = float("inf")
ROWS: list[Row] = [
    Row(key, samples, dtypes, no_values=RANDOM, check=check)
    for key, samples, dtypes, check in (
        ("aten::uniform", fill(2, 3), FLOATS, within(2, 3, 2.5)),
        ("aten::normal_functional", fill(1, 2), FLOATS, within(-20, 20, 1)),
        ("aten::log_normal", fill(0, 0.25), FLOATS, within(0, 20)),
        ("aten::exponential", fill(2), FLOATS, within(0, 50, 0.5)),
        ("aten::cauchy", fill(), FLOATS, within(-INF, INF)),
        ("aten::geometric", fill(0.25), (F32, I64), within(1, 200, 4)),
        ("aten::bernoulli.p", fill(0.25), (F32, BOOL), within(0, 1, 0.25)),
        ("aten::bernoulli", lambda t: [call(torch.full(SIZE, 0.25).to(t.dtype))], FLOATS, within(0, 1, 0.25)),
        ("aten::bernoulli.Tensor", lambda t: [call(t(*SIZE), torch.full(SIZE, 0.25))], (F32,), within(0, 1, 0.25)),
        ("aten::random.from", fill(3, 9), (F32, I64), within(3, 8, 5.5)),
        ("aten::random.to", fill(9), (F32, I64), within(0, 8, 4)),
        ("aten::random", fill(), (F32, I64), within(0, 2.0**63)),
        ("aten::rand", made(), FLOATS, within(0, 1, 0.5)),
        ("aten::randn", made(), FLOATS, within(-7, 7, 0)),
        ("aten::randint", made(9), (F32, I64), within(0, 8, 4)),
        ("aten::randint.low", made(3, 9), (F32, I64), within(3, 8, 5.5)),
        ("aten::rand_like", lambda t: [call(t(*SIZE))], FLOATS, within(0, 1, 0.5)),
        ("aten::randn_like", lambda t: [call(t(*SIZE))], FLOATS, within(-7, 7, 0)),
        ("aten::randint_like", lambda t: [call(t(*SIZE), 9)], (F32, I64), within(0, 8, 4)),
        ("aten::randint_like.low_dtype", lambda t: [call(t(*SIZE), 3, 9)], (F32, I64), within(3, 8, 5.5)),
        ("aten::normal.Tensor_float", lambda t: [call(torch.ones(SIZE), 2.0)], (F32,), within(-20, 20, 1)),
        ("aten::normal.float_Tensor", lambda t: [call(1.0, torch.full(SIZE, 2.0))], (F32,), within(-20, 20, 1)),
        ("aten::normal.Tensor_Tensor", lambda t: [call(torch.ones(SIZE), torch.full(SIZE, 2.0))], (F32,), within(-20, 20, 1)),
        ("aten::native_dropout", dropout, FLOATS, scaled_or_zero),
        ("aten::multinomial", lambda t: [call(torch.tensor([0.0, 1, 3, 0]), 400, True)], (F32,), within(1, 2, 1.75)),
        ("aten::poisson", lambda t: [call(torch.full(SIZE, 4.0))], (F32,), within(0, 40, 4)),
        ("aten::binomial", lambda t: [call(torch.full(SIZE, 8.0), torch.full(SIZE, 0.25))], (F32,), within(0, 8, 2)),
        ("aten::_standard_gamma", lambda t: [call(torch.full(SIZE, 2.0))], (F32,), within(0, 40, 2)),
        ("aten::_sample_dirichlet", lambda t: [call(torch.full((64, 4), 2.0))], (F32,), within(0, 1, 0.25)),
    )
] + [
    Row("aten::randperm", lambda t: [call(50, dtype=t.dtype, device=HERE)], (I64,), no_values=RANDOM, check=a_permutation),
    Row("aten::native_dropout_backward", lambda t: [call(t(3, 4), t.mask(3, 4), 2.0)], FLOATS),
    Row("aten::_standard_gamma_grad", lambda t: [call(t(3, 4, low=0.5, high=3), t(3, 4, low=0.5, high=3))], (F32,),
        tolerance={F32: (1e-3, 1e-4)}),
    Row("aten::_dirichlet_grad", concentrations, (F32,), tolerance={F32: (1e-3, 1e-4)}),
]
