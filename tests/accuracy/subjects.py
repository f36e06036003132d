"""What is measured: operators that work element by element, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import special
from torch.nn import functional
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, UnaryUfuncInfo

from tests.accuracy import inputs

aten = torch.ops.aten

# Entries of PyTorch's database that compute nothing, draw random numbers, or mean another thing in a wider dtype.
_LEFT_OUT = {
    "bfloat16", "bool", "byte", "char", "double", "float", "half", "int", "long", "short", "cdouble", "cfloat", "chalf", "fill",
    "jiterator_unary", "jiterator_binary", "jiterator_binary_return_by_ref", "nextafter", "nn.functional.prelu", "frexp",
    "nan_to_num", "nn.functional.rrelu", "isclose", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor",
    "polygamma", "special.polygamma",
}


# The CPU's own, of Bessel's and Airy's functions, leave out a coefficient.
SCIPY = {
    "special.airy_ai": lambda x: special.airy(x)[0], "special.bessel_j0": special.j0, "special.bessel_j1": special.j1,
    "special.bessel_y0": special.y0, "special.bessel_y1": special.y1,
}


_NOT_COMPLEX = {"float_power"}  # computes in complex128, for which there is no wider dtype


@dataclass(frozen=True)
class Subject:
    """One operator.

    Attributes:
        function: of the arguments, in any dtype and on any device.
        arguments: makes them.
        supports: whether the CPU has the operator in a dtype.
        rows: whether it reduces, or scans, the last dim of a matrix.
        reference: the same function of NumPy's arrays, where it is more exact than the CPU's in the wider dtype.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[torch.dtype], list[torch.Tensor]]
    supports: Callable[[torch.dtype], bool]
    rows: bool = False
    reference: Callable[..., Any] | None = None


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype != torch.float64


def _supports(entry: OpInfo, reference: Callable[..., Any] | None) -> Callable[[torch.dtype], bool]:
    def supports(dtype: torch.dtype) -> bool:
        if dtype == torch.float64:  # the CPU's own results are no measure of themselves
            return isinstance(reference, np.ufunc) and any(t in reference.types for t in ("g->g", "gg->g"))
        if (entry.name in _NOT_COMPLEX and dtype.is_complex) or (entry.name == "complex" and dtype == torch.float16):
            return False
        return entry.supports_dtype(dtype, "cpu")

    return supports


def _named(entry: OpInfo) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def _arguments(entry: OpInfo, count: int) -> Callable[[torch.dtype], list[torch.Tensor]]:
    def make(dtype: torch.dtype) -> list[torch.Tensor]:
        if dtype.is_complex:
            return inputs.complex_numbers(dtype, count)
        made = inputs.unary(dtype, entry.domain) if count == 1 else inputs.several(dtype, count)
        return _kept(entry.name, made)

    return make


# Beyond the limit an exponential in the formula is subnormal, though its product with what is large need not be.
_INNER_EXPONENTIALS = {
    "silu": 80, "mish": 80, "glu": 80, "gelu": 5, "elu_backward": 80, "softplus_backward": 80, "log_sigmoid": 80,
}


def _kept(name: str, arguments: list[torch.Tensor]) -> list[torch.Tensor]:
    """Without those that are no measure."""
    last = arguments[-1]
    keep = torch.full_like(last, True, dtype=torch.bool)
    if "polynomial" in name:  # for NaN the CPU returns what was in memory; it counts to the degree, one by one,
        keep = ~(last.abs() > 300) & ~arguments[0].isnan()
    if "polygamma" in name or "zeta" in name:  # and from far left of zero to it
        keep = ~(last < -1000) & ~((last.abs() > 1e8) & last.isfinite())
    if "igamma" in name:  # here a loop that ends with the slowest element
        keep = arguments[0].isfinite() & last.isfinite() & (arguments[0] < 100) & (last.abs() < 100)
    if "airy" in name:  # SciPy gives up
        keep = ~(last < -1e5)
    if "remainder" in name or "mod" in name or "kl_div" in name:  # a remainder, or one of two terms, would be subnormal
        keep = ~((last.abs() < 2.0**-100) & (last != 0))
    if name == "__rdiv__" or name == "pow.scalar_minus_2":  # an inverse would be
        keep = (arguments[0].abs() > 2.0**-60) & (arguments[0].abs() < 2.0**120) | ~arguments[0].isfinite()
    for part, limit in _INNER_EXPONENTIALS.items():
        if part in name:
            keep &= ~(last.abs() > limit) | last.isinf()
    return [argument[keep] for argument in arguments]


def _from_database() -> Iterator[Subject]:
    for entry in op_db:
        if isinstance(entry, UnaryUfuncInfo | BinaryUfuncInfo) and entry.name not in _LEFT_OUT:
            count = 1 if isinstance(entry, UnaryUfuncInfo) else 2
            function = entry.op
            if count == 1:
                kwargs, _ = entry.sample_kwargs("cpu", torch.float32, torch.ones(1))
                function = partial(function, **kwargs) if kwargs else function
            reference = SCIPY.get(entry.name) or (entry.ref if isinstance(entry.ref, np.ufunc) else None)
            yield Subject(_named(entry), function, _arguments(entry, count), _supports(entry, reference), reference=reference)


def _pointwise(name: str, function: Callable[..., Any], count: int, domains: tuple[inputs.Domain, ...] = ()) -> Subject:
    def arguments(dtype: torch.dtype) -> list[torch.Tensor]:
        made = inputs.unary(dtype, *domains) if count == 1 else inputs.several(dtype, count, domains)
        return _kept(name, made)

    return Subject(name, function, arguments, _is_float)


_UNIT = ((0.0, 1.0), (0.0, 1.0))
_POSITIVE = ((None, None), (0.0, None))
_POINTWISE = [
    _pointwise("frexp.mantissa", lambda x: torch.frexp(x)[0], 1),
    _pointwise("frexp.exponent", lambda x: torch.frexp(x)[1], 1),
    _pointwise("nan_to_num", lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0), 1),
    _pointwise("polygamma.0", lambda x: torch.polygamma(0, x), 1),
    *(_pointwise(f"polygamma.{n}", partial(torch.polygamma, n), 1, ((0.0, None),)) for n in (1, 2, 3)),
    _pointwise("logit.eps", lambda x: torch.logit(x, 1e-3), 1, ((0.0, 1.0),)),
    _pointwise("pow.scalar_half", lambda x: torch.pow(x, 0.5), 1),
    _pointwise("pow.scalar_minus_half", lambda x: torch.pow(x, -0.5), 1),
    _pointwise("pow.scalar_3", lambda x: torch.pow(x, 3), 1),
    _pointwise("pow.scalar_minus_2", lambda x: torch.pow(x, -2), 1),
    _pointwise("pow.scalar_1.7", lambda x: torch.pow(x, 1.75), 1),
    _pointwise("pow.base_2", lambda x: torch.pow(2.0, x), 1),
    _pointwise("nn.functional.gelu", functional.gelu, 1),
    _pointwise("nn.functional.gelu.tanh", lambda x: functional.gelu(x, approximate="tanh"), 1),
    _pointwise("nn.functional.hardswish", functional.hardswish, 1),
    _pointwise("nn.functional.leaky_relu", functional.leaky_relu, 1),
    _pointwise("nn.functional.softplus.beta", lambda x: functional.softplus(x, beta=2.5, threshold=30), 1),
    _pointwise("nn.functional.glu", lambda x, y: functional.glu(torch.stack([x, y]), 0)[0], 2),
    _pointwise("nn.functional.prelu", lambda x, w: aten._prelu_kernel(x, w), 2),
    _pointwise("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), 3),
    _pointwise("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), 3),
    _pointwise("lerp", torch.lerp, 3),
    _pointwise("add.alpha", lambda x, y: torch.add(x, y, alpha=2.5), 2),
    _pointwise("nn.functional.binary_cross_entropy", lambda x, t: functional.binary_cross_entropy(
        torch.where((x >= 0) & (x <= 1), x, 0.5), torch.where((t >= 0) & (t <= 1), t, 0.5), reduction="none"), 2, _UNIT),
    _pointwise("nn.functional.binary_cross_entropy_with_logits", lambda x, t: functional.binary_cross_entropy_with_logits(
        x, t, reduction="none"), 2, ((None, None), (0.0, 1.0))),
    _pointwise("nn.functional.l1_loss", lambda x, t: functional.l1_loss(x, t, reduction="none"), 2),
    _pointwise("nn.functional.mse_loss", lambda x, t: functional.mse_loss(x, t, reduction="none"), 2),
    _pointwise("nn.functional.smooth_l1_loss", lambda x, t: functional.smooth_l1_loss(x, t, reduction="none"), 2),
    _pointwise("nn.functional.huber_loss", lambda x, t: functional.huber_loss(x, t, reduction="none", delta=1.5), 2),
    _pointwise("nn.functional.soft_margin_loss", lambda x, t: functional.soft_margin_loss(x, t, reduction="none"), 2),
    _pointwise("nn.functional.kl_div", lambda x, t: functional.kl_div(x, t, reduction="none"), 2, _POSITIVE),
    _pointwise("nn.functional.poisson_nll_loss", lambda x, t: functional.poisson_nll_loss(x, t, reduction="none"), 2, _POSITIVE),
    _pointwise("nn.functional.hinge_embedding_loss", lambda x, t: functional.hinge_embedding_loss(x, t, reduction="none"), 2),
]

# Gradients: of what comes from above, and of the input or, of the first two, of the result.
_GRADIENTS = [
    _pointwise(name, function, 2)
    for name, function in {
        "sigmoid_backward": aten.sigmoid_backward,
        "tanh_backward": aten.tanh_backward,
        "silu_backward": aten.silu_backward,
        "mish_backward": aten.mish_backward,
        "hardswish_backward": aten.hardswish_backward,
        "hardsigmoid_backward": aten.hardsigmoid_backward,
        "gelu_backward": aten.gelu_backward,
        "gelu_backward.tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
        "elu_backward": lambda g, x: aten.elu_backward(g, 1.5, 1.0, 1.0, False, x),
        "softplus_backward": lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0),
        "log_sigmoid_backward": lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]),
        "logit_backward": lambda g, x: aten.logit_backward(g, x),
        "leaky_relu_backward": lambda g, x: aten.leaky_relu_backward(g, x, 0.01, False),
        "threshold_backward": lambda g, x: aten.threshold_backward(g, x, 0.5),
        "hardtanh_backward": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
        "softshrink_backward": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    }.items()
]


def _over_rows(name: str, function: Callable[[torch.Tensor], Any]) -> Subject:
    return Subject(name, function, lambda dtype: [inputs.rows(dtype)[0]], _is_float, rows=True)


_REDUCTIONS = [
    _over_rows(name, function)
    for name, function in {
        "sum": lambda x: x.sum(-1),
        "nansum": lambda x: x.nansum(-1),
        "mean": lambda x: x.mean(-1),
        "nanmean": lambda x: x.nanmean(-1),
        "prod": lambda x: x[:, :20].prod(-1),
        "var": lambda x: x.var(-1),
        "std": lambda x: x.std(-1),
        "std.correction_0": lambda x: x.std(-1, correction=0),
        "var_mean.variance": lambda x: torch.var_mean(x, -1)[0],
        "var_mean.mean": lambda x: torch.var_mean(x, -1)[1],
        "amax": lambda x: x.amax(-1),
        "amin": lambda x: x.amin(-1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "linalg.vector_norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
        "linalg.vector_norm.1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
        "linalg.vector_norm.3": lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
        "linalg.vector_norm.half": lambda x: torch.linalg.vector_norm(x, 0.5, dim=-1),
        "linalg.vector_norm.inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=-1),
        "norm": lambda x: x.norm(dim=-1),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "cumsum": lambda x: x.cumsum(-1),
        "cumprod": lambda x: x[:, :20].cumprod(-1),
        "logcumsumexp": lambda x: x.logcumsumexp(-1),
        "cummax": lambda x: x.cummax(-1)[0],
        "nn.functional.softmin": lambda x: functional.softmin(x, -1),
        "nn.functional.normalize": lambda x: functional.normalize(x, dim=-1),
        "nn.functional.layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        "nn.functional.rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:]),
        "nn.functional.cosine_similarity": lambda x: functional.cosine_similarity(x, x.flip(0), dim=-1),
    }.items()
]

SUBJECTS: list[Subject] = [*_from_database(), *_POINTWISE, *_GRADIENTS, *_REDUCTIONS]
