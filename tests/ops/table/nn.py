"""Rows of losses, normalisation, attention and recurrent cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import BF16, F32, FLOATS, Make, Row, Sample, Samples, call, rows

REDUCTIONS = (0, 1, 2)
LOOSE = {F32: (1e-4, 1e-5), BF16: (3e-2, 3e-2)}
aten = torch.ops.aten


def loss(*options: Any, low: float = -2, high: float = 2) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for reduction in REDUCTIONS:
            yield call(t(3, 4, low=low, high=high), t(3, 4, low=low, high=high), reduction, *options)

    return samples


def loss_backward(*options: Any, low: float = -2, high: float = 2) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for reduction in REDUCTIONS:
            grad = t(3, 4) if reduction == 0 else t()
            yield call(grad, t(3, 4, low=low, high=high), t(3, 4, low=low, high=high), reduction, *options)

    return samples


def nll(*shape: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        target = t.index(shape[1], shape[0], *shape[2:])
        for reduction in REDUCTIONS:
            yield call(t(*shape), target, t(shape[1], low=0.5, high=1), reduction, -100)
        yield call(t(*shape), target, None, 1, 1)
        yield call(t(*shape), torch.full_like(target, 2), None, 1, 2)

    return samples


def nll_backward(*shape: int) -> Samples:
    forward = aten.nll_loss_forward if len(shape) == 2 else aten.nll_loss2d_forward

    def samples(t: Make) -> Iterator[Sample]:
        for sample in nll(*shape)(t):
            out, weight = forward(*sample.args)
            yield call(t(*out.shape), *sample.args, weight)

    return samples


def bce(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=0, high=1), t(3, 4, low=0, high=1))
    yield call(t(3, 4, low=0, high=1), t(3, 4, low=0, high=1), t(4), 0)
    yield call(torch.tensor([0.0, 1.0]).to(t.dtype), torch.tensor([1.0, 1.0]).to(t.dtype), None, 0)


def bce_backward(t: Make) -> Iterator[Sample]:
    yield call(t(), t(3, 4, low=0.1, high=0.9), t(3, 4, low=0, high=1))
    yield call(t(3, 4), t(3, 4, low=0.1, high=0.9), t(3, 4, low=0, high=1), t(3, 4), 0)


def bce_logits(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4, low=0, high=1))
    yield call(t(3, 4), t(3, 4, low=0, high=1), t(4), t(4, low=1, high=2), 0)


def layer_norm(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), [4], t(4), t(4), 1e-5)
    yield call(t(2, 3, 4), [3, 4], None, None, 1e-5)
    yield call(t(4, 3).t(), [4], t(4), None, 1e-5)


def layer_norm_backward(t: Make) -> Iterator[Sample]:
    for sample in layer_norm(t):
        x, shape, weight, bias, _ = sample.args
        _, mean, rstd = aten.native_layer_norm(*sample.args)
        yield call(t(*x.shape), x, shape, mean, rstd, weight, bias, [True, weight is not None, bias is not None])


def rms_norm(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), [4], t(4), 1e-5)
    yield call(t(2, 3, 4), [4], None, None)


def rms_reference(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, eps: float | None) -> Any:
    """The fused form returns the reciprocal root as well."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps))
    return torch.nn.functional.rms_norm(x, shape, weight, eps), root


def rms_backward(t: Make) -> Iterator[Sample]:
    x, weight = t(3, 4), t(4)
    yield call(t(3, 4), x, [4], rms_reference(x, [4], weight, 1e-5)[1], weight, [True, True])


def rms_backward_reference(grad: torch.Tensor, x: torch.Tensor, shape: list[int], rstd: torch.Tensor, weight: torch.Tensor,
                           mask: list[bool]) -> Any:
    """Autograd of the public form."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    return torch.autograd.grad(torch.nn.functional.rms_norm(x, shape, weight, 1e-5), (x, weight), grad)


def group_norm(t: Make) -> Iterator[Sample]:
    yield call(t(2, 6, 5), t(6), t(6), 2, 6, 5, 3, 1e-5)
    yield call(t(2, 4, 3, 3), None, None, 2, 4, 9, 2, 1e-5)


def group_norm_backward(t: Make) -> Iterator[Sample]:
    for sample in group_norm(t):
        x, weight, bias, n, c, hw, group, _ = sample.args
        _, mean, rstd = aten.native_group_norm(*sample.args)
        yield call(t(*x.shape), x, mean, rstd, weight, n, c, hw, group, [True, weight is not None, bias is not None])


def batch_norm(training: bool | None, stats: bool = True) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for shape in ((4, 3), (2, 3, 4, 4)):
            affine = (t(3, low=0.5, high=1), t(3))
            running = (t(3, dtype=torch.float32), t(3, low=0.5, high=2, dtype=torch.float32)) if stats else ()
            mode = () if training is None else (training,)
            weights = [w.float() for w in affine] if t.dtype == torch.bfloat16 else affine
            yield call(t(*shape), *weights, *running, *mode, 0.1, 1e-5)

    return samples


def batch_norm_backward(t: Make) -> Iterator[Sample]:
    for training in (True, False):
        for sample in batch_norm(training)(t):
            x, weight, _, mean, var, *_ = sample.args
            copies = (a.clone() if isinstance(a, torch.Tensor) else a for a in sample.args)
            _, save_mean, save_invstd = aten.native_batch_norm(*copies)
            yield call(t(*x.shape), x, weight, mean, var, save_mean, save_invstd, training, 1e-5, [True, True, True])


def attention(t: Make) -> Iterator[Sample]:
    q, k, v = t(2, 3, 5, 8), t(2, 3, 6, 8), t(2, 3, 6, 8)
    yield call(q, k, v)
    yield call(q, k, v, t(2, 1, 5, 6))
    yield call(q, t(2, 3, 5, 8), t(2, 3, 5, 8), None, 0.0, True, scale=0.3)


def attention_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None, p: float = 0.0,
                        causal: bool = False, scale: float | None = None) -> Any:
    """The result alone: what is kept for the gradient is ours to choose."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, p, causal, scale=scale)


def layer(t: Make) -> Iterator[Sample]:
    """Layers of width 4 over 5 steps, of each mode: one direction, and both without biases."""
    for mode, gates in enumerate((1, 1, 4, 3)):
        for directions, widths in ((1, (3, 4, 0, 0)), (2, (3, 4))):
            weights = [t(4 * gates, width) if width else t(4 * gates) for _ in range(directions) for width in widths]
            states = t(directions, 2, 4), t(directions, 2, 4) if gates == 4 else None
            yield call(t(5, 2, 3), weights, len(widths), None, *states, mode, 4, 0, 1, False, 0.0, True, directions == 2, [], None)


def layer_reference(x: torch.Tensor, weights: list[torch.Tensor], stride: int, _: None, h: torch.Tensor, c: torch.Tensor | None,
                    mode: int, *options: Any) -> torch.Tensor:
    layers = (torch.rnn_relu, torch.rnn_tanh, torch.lstm, torch.gru)
    return layers[mode](x, h if c is None else (h, c), weights, stride == 4, 1, 0.0, True, options[6], False)[0]


def lstm(t: Make) -> Iterator[Sample]:
    yield call(t(3, 16), t(3, 16), t(3, 4), t(16), t(16))
    yield call(t(3, 16), t(3, 16), t(3, 4))


def lstm_reference(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, bx: Any = None, bh: Any = None) -> Any:
    """Hidden state, cell state and the activated gates."""
    gates = x + h + (0 if bx is None else bx + bh)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cell = f * c + i * g
    return o * cell.tanh(), cell, torch.cat([i, f, g, o], 1)


def gru(t: Make) -> Iterator[Sample]:
    yield call(t(3, 12), t(3, 12), t(3, 4), t(12), t(12))
    yield call(t(3, 12), t(3, 12), t(3, 4))


def gru_reference(x: torch.Tensor, h: torch.Tensor, state: torch.Tensor, bx: Any = None, bh: Any = None) -> Any:
    """Hidden state, and what the gradient needs: the gates, the old state and its share of the candidate."""
    x, h = (x, h) if bx is None else (x + bx, h + bh)
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (state - n), torch.cat([r, z, n, state, hn], 1)


def update_stats(t: Make) -> Iterator[Sample]:
    yield call(t(4, 3, 2), t(3), t(3, low=1), 0.1)
    yield call(t(4, 3), None, None, 0.1)


def masked_softmax(t: Make) -> Iterator[Sample]:
    wanted = torch.tensor([False, True, False, True])
    yield call(t(3, 4), torch.stack([wanted, ~wanted, ~wanted]), 1, 2)
    yield call(t(3, 4), torch.stack([wanted, ~wanted, wanted]), 0, 2)
    yield call(t(3, 4), torch.ones(3, 4, dtype=torch.bool), None, 2)
    yield call(t(2, 3, 4, 4), t.mask(4, 4), None, 0)
    yield call(t(2, 3, 4, 4), torch.stack([wanted, ~wanted]), 3, 1)
    yield call(t(0, 4), t.mask(0, 4), 1, 2)


def masked_softmax_backward(t: Make) -> Iterator[Sample]:
    for dim in (1, 0, None):
        yield call(t(3, 4), t(3, 4).softmax(1), t.mask(3, 4), dim)


def no_class(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3, 4), torch.ones(2, dtype=torch.int64), None, 1, -100)


def wrong_shape(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3, 4), [5], None, None, 1e-5)


def weight_norms(t: Make) -> Iterator[Sample]:
    v = t(4, 3, 2)
    for dim in (0, 2):
        shape = [n if d == dim else 1 for d, n in enumerate(v.shape)]
        norms = v.double().square().sum([d for d in range(3) if d != dim], keepdim=True).sqrt().to(t.dtype)
        yield call(t(4, 3, 2), v, t(*shape), norms, dim)


ROWS: list[Row] = [
    Row("aten::_weight_norm_interface_backward", weight_norms, (F32,)),
    Row("aten::mse_loss", loss(), FLOATS, grads=True),
    Row("aten::mse_loss_backward", loss_backward(), FLOATS),
    Row("aten::smooth_l1_loss", loss(0.7), FLOATS, grads=True),
    Row("aten::smooth_l1_loss_backward", loss_backward(0.7), FLOATS),
    Row("aten::huber_loss", loss(0.7), FLOATS, grads=True),
    Row("aten::huber_loss_backward", loss_backward(0.7), FLOATS),
    Row("aten::soft_margin_loss", loss(), FLOATS, grads=("self",)),
    Row("aten::soft_margin_loss_backward", loss_backward(), FLOATS),
    Row("aten::nll_loss_forward", nll(5, 4), FLOATS, grads=("self",), errors=no_class),
    Row("aten::nll_loss2d_forward", nll(2, 4, 3, 3), FLOATS, grads=("self",)),
    Row("aten::nll_loss_backward", nll_backward(5, 4), FLOATS),
    Row("aten::nll_loss2d_backward", nll_backward(2, 4, 3, 3), FLOATS),
    Row("aten::binary_cross_entropy", bce, FLOATS),
    Row("aten::binary_cross_entropy_backward", bce_backward, FLOATS),
    Row("aten::binary_cross_entropy_with_logits", bce_logits, FLOATS, grads=("self",)),
    Row("aten::native_layer_norm", layer_norm, FLOATS, grads=True, tolerance=LOOSE, errors=wrong_shape),
    Row("aten::native_layer_norm_backward", layer_norm_backward, FLOATS, tolerance=LOOSE),
    Row("aten::_fused_rms_norm", rms_norm, FLOATS, grads=True, tolerance=LOOSE, reference=rms_reference),
    Row("aten::_fused_rms_norm_backward", rms_backward, FLOATS, tolerance=LOOSE, reference=rms_backward_reference),
    Row("aten::native_group_norm", group_norm, FLOATS, grads=True, tolerance=LOOSE),
    Row("aten::native_group_norm_backward", group_norm_backward, (F32,), tolerance=LOOSE),
    *rows(["aten::native_batch_norm", "aten::_native_batch_norm_legit_functional"], batch_norm(True), FLOATS, tolerance=LOOSE),
    Row("aten::_native_batch_norm_legit.no_stats", batch_norm(True, stats=False), (F32,), grads=True, tolerance=LOOSE),
    *rows(["aten::_native_batch_norm_legit_no_training"], batch_norm(None), (F32,), tolerance=LOOSE),
    Row("aten::native_batch_norm_backward", batch_norm_backward, (F32,), tolerance=LOOSE),
    Row("aten::_scaled_dot_product_fused_attention_overrideable", attention, FLOATS, tolerance=LOOSE, reference=attention_reference,
        first_only=True, no_strides="heads and positions swap places in memory, as flash attention leaves them"),
    Row("aten::_transform_bias_rescale_qkv", lambda t: [call(t(2, 3, 24), t(24), 2)], FLOATS, dense=True),
    Row("aten::_masked_softmax", masked_softmax, FLOATS, dense=True),  # the CPU mixes up the places of strided ones
    Row("aten::_masked_softmax_backward", masked_softmax_backward, FLOATS, dense=True),
    Row("aten::batch_norm_update_stats", update_stats, FLOATS, tolerance=LOOSE),
    Row("aten::_cudnn_rnn", layer, FLOATS, tolerance=LOOSE, reference=layer_reference, first_only=True),
    Row("aten::_thnn_fused_lstm_cell", lstm, FLOATS, tolerance=LOOSE, reference=lstm_reference),
    Row("aten::_thnn_fused_gru_cell", gru, FLOATS, tolerance=LOOSE, reference=gru_reference),
]
