"""Rows of activations and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import F32, FLOATS, Make, Row, Sample, Samples, call, rows


def one(*parameters: Any, **options: Any) -> Samples:
    """One tensor, with defaults and with these parameters."""

    def samples(t: Make) -> Iterator[Sample]:
        yield call(t(3, 4, low=-5, high=5))
        yield call(t())
        yield call(t(0, 3))
        yield call(t.special())
        if parameters or options:
            yield call(t(3, 4, low=-5, high=5), *parameters, **options)

    return samples


def backward(*parameters: Any, low: float = -5, high: float = 5, **options: Any) -> Samples:
    """The gradient of the result, then the argument."""

    def samples(t: Make) -> Iterator[Sample]:
        yield call(t(3, 4), t(3, 4, low=low, high=high), *parameters, **options)
        yield call(t(3, 4), t(4, 3, low=low, high=high).t(), *parameters, **options)
        yield call(t(), t(low=low, high=high), *parameters, **options)

    return samples


def log_sigmoid_backward(t: Make) -> Iterator[Sample]:
    x = t(3, 4)
    yield call(t(3, 4), x, torch.ops.aten.log_sigmoid_forward(x)[1])


def leaky_result(t: Make) -> Iterator[Sample]:
    yield from backward(0.1, False)(t)
    yield call(t(3, 4), t(3, 4), 0.1, True)


def elu_backward(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 1.5, 1.1, 0.7, False, t(3, 4))
    yield call(t(3, 4), 1, 1, 1, True, t(3, 4, low=-0.9, high=3))


def threshold(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 0.5, 20)
    yield call(t(3, 4), 0, 0)


def glu(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4))
    yield call(t(4, 3), 0)


def glu_second(t: Make) -> Iterator[Sample]:
    x, grad = t(3, 4), t(3, 2)
    yield call(torch.ops.aten.glu_backward(grad, x, 1), grad, x, t(3, 2), t(3, 4), 1)


def odd(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3))


def prelu(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4, low=0, high=1))
    yield call(t(2, 3, 4), t(3, 1, low=0, high=1).expand(2, 3, 4))


def prelu_backward(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4), t(3, 4, low=0, high=1))


def rrelu_backward(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4), t(3, 4, low=0.1, high=0.3), 0.1, 0.3, True, False)
    yield call(t(3, 4), t(3, 4), t(3, 4, low=0.1, high=0.3), 0.1, 0.3, False, False)


ROWS: list[Row] = [
    *rows(["aten::relu", "aten::silu", "aten::mish", "aten::hardswish", "aten::hardsigmoid"], one(), FLOATS, grads=True),
    *rows(["aten::silu_backward", "aten::mish_backward", "aten::hardswish_backward", "aten::hardsigmoid_backward"],
          backward(), FLOATS),
    *rows(["aten::sigmoid_backward"], backward(low=0.01, high=0.99), FLOATS),
    *rows(["aten::tanh_backward"], backward(low=-0.9, high=0.9), FLOATS),
    Row("aten::gelu", one(approximate="tanh"), FLOATS, grads=True),
    Row("aten::gelu_backward", backward(), FLOATS),
    Row("aten::threshold", threshold, FLOATS, grads=True),
    Row("aten::threshold_backward", backward(0.5), FLOATS),
    Row("aten::leaky_relu", one(0.2), FLOATS, grads=True),
    Row("aten::leaky_relu_backward", leaky_result, FLOATS),
    Row("aten::elu", one(1.5, 1.1, 0.7), FLOATS, grads=True),
    Row("aten::elu_backward", elu_backward, FLOATS),
    Row("aten::hardtanh", one(-2, 3), FLOATS, grads=True),
    Row("aten::hardtanh_backward", backward(-2, 3), FLOATS),
    Row("aten::softplus", one(2, 3), FLOATS, grads=True),
    Row("aten::softplus_backward", backward(2, 3), FLOATS),
    Row("aten::log_sigmoid_forward", one(), (F32,), grads=True),
    Row("aten::log_sigmoid_backward", log_sigmoid_backward, (F32,)),
    Row("aten::glu", glu, FLOATS, grads=True, errors=odd),
    Row("aten::glu_backward", lambda t: [call(t(3, 2), t(3, 4), 1)], FLOATS),
    Row("aten::glu_jvp", lambda t: [call(t(3, 2), t(3, 4), t(3, 4), 1)], (F32,)),
    Row("aten::glu_backward_jvp", glu_second, (F32,)),
    Row("aten::_prelu_kernel", prelu, FLOATS, grads=True),
    Row("aten::_prelu_kernel_backward", prelu_backward, FLOATS),
    *rows(["aten::hardshrink", "aten::softshrink"], one(0.7), FLOATS, grads=True),
    *rows(["aten::hardshrink_backward", "aten::softshrink_backward"], backward(0.7), FLOATS),
    Row("aten::logit_backward", backward(low=0.05, high=0.95), FLOATS),
    Row("aten::rrelu_with_noise_backward", rrelu_backward, FLOATS),
]
