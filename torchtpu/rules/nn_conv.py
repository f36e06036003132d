"""Convolutions of one to three spatial dimensions, transposed ones and gradients.

The gradients are the linear transposes of the forward convolution, which are convolutions again.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array
Ints = Sequence[int]
Mask = tuple[bool, ...]


def _per_dim(values: Ints, num_dims: int) -> tuple[int, ...]:
    """One value a spatial dimension; ATen lets a single one stand for all."""
    return tuple(values) * num_dims if len(values) == 1 else tuple(values)


def _transposed_weight(weight: Array, groups: int) -> Array:
    """Weight of a transposed convolution, [in, out / groups, ...], as that of a direct one, [out, in / groups, ...]."""
    num_in, num_out, *kernel = weight.shape
    weight = weight.reshape(groups, num_in // groups, num_out, *kernel).swapaxes(1, 2)
    weight = weight.reshape(groups * num_out, num_in // groups, *kernel)
    return jnp.flip(weight, tuple(range(2, weight.ndim)))


def _convolve(
    ctx: RuleContext, x: Array, weight: Array, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, accumulate: np.dtype | None,
) -> Array:
    num_dims = x.ndim - 2
    stride, padding, dilation = (_per_dim(v, num_dims) for v in (stride, padding, dilation))
    spatial = "DHW"[3 - num_dims:]
    window, dilated = stride, (1,) * num_dims
    pads = [(p, p) for p in padding]
    if transposed:
        # The adjoint of a strided convolution: the stride dilates the input, the padding is what the kernel leaves.
        weight = _transposed_weight(weight, groups)
        window, dilated = dilated, stride
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        extra = _per_dim(output_padding, num_dims)
        pads = [(r - p, r - p + e) for r, p, e in zip(reach, padding, extra, strict=True)]
    return lax.conv_general_dilated(
        x, weight, window, pads, lhs_dilation=dilated, rhs_dilation=dilation,
        dimension_numbers=("NC" + spatial, "OI" + spatial, "NC" + spatial), feature_group_count=groups,
        precision=ctx.matmul_precision, preferred_element_type=accumulate)


@lower("aten::convolution")
def aten_convolution(
    ctx: RuleContext, input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Array:
    """aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor

    Direct or transposed, over the trailing dimensions of [batch, channel, ...].
    """  # noqa: E501
    if 0 in ctx.out_shape or 0 in input.shape or 0 in weight.shape:
        out = jnp.zeros(ctx.out_shape, ctx.accum(input.dtype))
    else:
        out = _convolve(ctx, input, weight, stride, padding, dilation, transposed, output_padding, groups,
                        ctx.accum(input.dtype))
    return out if bias is None else out + widen(bias).reshape((1, -1) + (1,) * (out.ndim - 2))


@lower("aten::convolution_backward")
def aten_convolution_backward(
    ctx: RuleContext, grad_output: Array, input: Array, weight: Array, bias_sizes: Ints | None, stride: Ints,
    padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints, groups: int, output_mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    def convolve(x: Array, w: Array) -> Array:
        # No wider accumulator here: JAX cannot transpose one, and XLA sums 16-bit convolutions in float32 anyway.
        return _convolve(ctx, x, w, stride, padding, dilation, transposed, output_padding, groups, None)

    empty = 0 in grad_output.shape or 0 in input.shape or 0 in weight.shape
    grad_output = grad_output.astype(input.dtype)
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        (grad_input,) = ((jnp.zeros_like(input),) if empty
                         else jax.linear_transpose(lambda x: convolve(x, weight), input)(grad_output))
    if output_mask[1]:
        (grad_weight,) = ((jnp.zeros_like(weight),) if empty
                          else jax.linear_transpose(lambda w: convolve(input, w), weight)(grad_output))
    if output_mask[2]:
        grad_bias = jnp.sum(widen(grad_output), (0, *range(2, grad_output.ndim)))
    return grad_input, grad_weight, grad_bias


def _unflattened(weight: Array, kernel_size: Ints) -> Array:
    """ATen lets the weight of these be a matrix, [out, in * kernel]."""
    return weight.reshape(weight.shape[0], -1, *kernel_size) if weight.ndim == 2 else weight


@lower("aten::_slow_conv2d_forward", "aten::slow_conv3d_forward", "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d")
def aten_slow_conv(
    ctx: RuleContext, self: Array, weight: Array, kernel_size: Ints, bias: Array | None, stride: Ints, padding: Ints,
    dilation: Ints = (1,),
) -> Array:
    """A direct convolution by the names of ATen's own kernels; the batch may be missing."""
    batch = self if self.ndim == len(kernel_size) + 2 else self[None]
    out = aten_convolution(
        ctx, batch, _unflattened(weight, kernel_size), bias, stride, padding, dilation, False, (0,), 1)
    return out.reshape(ctx.out_shape)


@lower("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d")
def aten_slow_conv_transpose(
    ctx: RuleContext, self: Array, weight: Array, kernel_size: Ints, bias: Array | None, stride: Ints, padding: Ints,
    output_padding: Ints, dilation: Ints,
) -> Array:
    """A transposed convolution by the name of ATen's own kernel; the batch may be missing."""
    batch = self if self.ndim == len(kernel_size) + 2 else self[None]
    out = aten_convolution(ctx, batch, weight, bias, stride, padding, dilation, True, output_padding, 1)
    return out.reshape(ctx.out_shape)


@lower("aten::_slow_conv2d_backward.output_mask")
def aten__slow_conv2d_backward_output_mask(
    ctx: RuleContext, grad_output: Array, self: Array, weight: Array, kernel_size: Ints, stride: Ints, padding: Ints,
    output_mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::_slow_conv2d_backward.output_mask(Tensor grad_output, Tensor self, Tensor weight, SymInt[2] kernel_size, SymInt[2] stride, SymInt[2] padding, bool[3] output_mask) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)"""  # noqa: E501
    grad_input, grad_weight, grad_bias = aten_convolution_backward(
        ctx, grad_output, self, _unflattened(weight, kernel_size), None, stride, padding, (1,), False, (0,), 1, output_mask)
    return grad_input, None if grad_weight is None else grad_weight.reshape(weight.shape), grad_bias
