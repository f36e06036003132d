"""Rows of fake quantisation."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import BF16, F32, F64, Make, Row, Sample, call

BOUNDS = (-4, 7)
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e10, -1e10, 0.5, 1.5, -0.5, -0.0])


def spread(t: Make) -> torch.Tensor:
    return t(2, 3, 4, low=-6, high=6)


def zero_points(t: Make) -> torch.Tensor:
    return torch.tensor([1, 0, 3], dtype=torch.int32)


def per_tensor(t: Make) -> Iterator[Sample]:
    yield call(spread(t), 0.5, 1, *BOUNDS)
    yield call(SPECIAL.to(t.dtype), 1.0, 0, *BOUNDS)
    yield call(spread(t), 0.13, 0, 0, 255)


def tensor_parameters(t: Make) -> Iterator[Sample]:
    for enabled in (0, 1):
        yield call(SPECIAL.to(t.dtype), torch.tensor([0.5]), torch.tensor([1], dtype=torch.int32), torch.tensor([enabled]), *BOUNDS)


def per_channel(t: Make) -> Iterator[Sample]:
    scale = t(3, low=0.1, high=1, dtype=F32)
    yield call(spread(t), scale, zero_points(t), 1, *BOUNDS)
    yield call(spread(t), scale, t(3, low=-1, high=1, dtype=F32), 1, *BOUNDS)
    yield call(SPECIAL[3:].to(t.dtype)[None], scale[:1], zero_points(t)[:1], 0, *BOUNDS)


def learnable(t: Make) -> Iterator[Sample]:
    for zero_point in (1.4, -20.0, 20.0):
        yield call(spread(t), torch.tensor([0.5]), torch.tensor([zero_point]), *BOUNDS)


def learnable_backward(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3, 4), spread(t), torch.tensor([0.5]), torch.tensor([1.4]), *BOUNDS, 2.0)


def learnable_channels(t: Make) -> Iterator[Sample]:
    yield call(spread(t), t(3, low=0.1, high=1), torch.tensor([0, 0.6, 1]), 1, *BOUNDS)


def learnable_channels_backward(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3, 4), spread(t), t(3, low=0.1, high=1), torch.tensor([0, 0.6, 1]), 1, *BOUNDS, 1.5)


ROWS: list[Row] = [
    Row("aten::fake_quantize_per_tensor_affine_cachemask", per_tensor, (F32, BF16, F64)),
    Row("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", tensor_parameters, (F32,)),
    Row("aten::fake_quantize_per_channel_affine_cachemask", per_channel, (F32, BF16, F64)),
    Row("aten::_fake_quantize_learnable_per_tensor_affine", learnable, (F32,)),
    Row("aten::_fake_quantize_learnable_per_tensor_affine_backward", learnable_backward, (F32,)),
    Row("aten::_fake_quantize_learnable_per_channel_affine", learnable_channels, (F32,)),
    Row("aten::_fake_quantize_learnable_per_channel_affine_backward", learnable_channels_backward, (F32,)),
]
