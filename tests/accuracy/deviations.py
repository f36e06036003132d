"""Operators that are over the bar, and why: the only such list.

Which elements are over depends on the vector instructions of the CPU a little; so an entry that is not needed fails no test, but
``python -m tests.accuracy`` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.accuracy.referee import Verdict

_NARROW = ("float32", "bfloat16", "float16")
_F32 = ("float32",)
_INF = float("inf")


@dataclass(frozen=True)
class Deviation:
    """Operators that are over the bar in some dtypes for one reason.

    Attributes:
        most_ulp: the worst error of the elements that are over; infinite where NaN, an infinity or the sign of a zero differs.
    """

    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    most_ulp: float
    reason: str

    def covers(self, verdict: Verdict) -> bool:
        """Whether the operator and dtype are meant."""
        return verdict.op in self.ops and verdict.dtype in self.dtypes


DEVIATIONS = (
    # ---- what XLA computes ----
    Deviation(("exp", "expm1"), _F32, 5, "XLA:CPU's exponential is off by 4.7 ulp from 88.7, next to overflow"),
    Deviation(("nn.functional.tanhshrink",), ("float32", "complex64"), 1e8,
              "PyTorch subtracts tanh(x) from x, which near zero magnifies the 3 ulp that XLA's tanh is off"),
    Deviation(("tan", "tanh"), ("complex64",), 100, "XLA's quotient next to a pole"),
    Deviation(("igamma", "igammac"), _NARROW, _INF, "XLA's series and continued fraction, which end at an absolute error"),
    Deviation(("cummax",), _NARROW, _INF, "minus zero becomes zero: associative_scan interleaves by adding zeros"),
    Deviation(("remainder",), ("float64",), _INF, "the sign of a zero beside the largest number"),
    # ---- what the CPU does otherwise ----
    Deviation(("clamp_max", "clamp_min", "fmax", "fmin", "max.binary", "maximum", "min.binary", "minimum"), _NARROW, _INF,
              "of two zeros the CPU takes the second (or first), XLA the one whose sign the larger or smaller has"),
    Deviation(("nn.functional.relu6",), _NARROW, _INF, "minus zero becomes zero, as above"),
    Deviation(("addcmul", "lerp", "add.alpha"), _NARROW, _INF,
              "the CPU rounds a product and a sum once (FMA), which XLA cannot be told: it shows where they cancel or overflow"),
    Deviation(("cumsum", "cumprod", "logcumsumexp"), _F32, 4e4, "the CPU accumulates in float64, which a TPU does not have"),
    Deviation(("var_mean.mean",), _NARROW, _INF, "the CPU's running mean of a row with an infinity is NaN; its sum is not"),
    Deviation(("nn.functional.layer_norm",), _NARROW, _INF, "rows of minus zero give minus zero; next to zero, luck of sums"),
    Deviation(("hardswish_backward", "elu_backward"), _NARROW, _INF,
              "at NaN the gradient passes, as in ATen's scalar loop; its vectorised loop gives NaN"),
    Deviation(("special.zeta",), _F32, _INF, "for exponents beyond 1e30 ATen gives NaN, not the limit"),
    Deviation(("sigmoid", "nn.functional.silu.complex"), ("complex64",), _INF,
              "where the exponential overflows the CPU gives NaN, in complex128 as well; here it is the limit"),
    Deviation(("pow", "__rpow__", "ldexp"), ("complex64",), _INF, "of large exponents: what the logarithm rounds, or overflow"),
    # ---- where the result is the small difference of large terms, and its error is luck: the CPU's is as large close by ----
    Deviation(("logaddexp", "nn.functional.binary_cross_entropy_with_logits", "nn.functional.poisson_nll_loss",
               "nn.functional.cosine_similarity", "nn.functional.kl_div"), _NARROW, 600, "next to the zero of the result"),
    Deviation(("nn.functional.gelu", "gelu_backward", "special.ndtr"), _NARROW, 2e7,
              "1 + erf(x) cancels left of -3 on both sides; the complement would cost a TPU an exponential more"),
    Deviation(("silu_backward", "mish_backward", "gelu_backward.tanh"), _F32, 400, "next to the zero of the derivative"),
    Deviation(("lgamma", "mvlgamma.mvlgamma_p_1", "mvlgamma.mvlgamma_p_3", "mvlgamma.mvlgamma_p_5", "digamma", "polygamma.0",
               "polygamma.3"), _F32, 2e3, "left of zero, next to the zeros, where the reflection's terms cancel"),
    Deviation(("polygamma.2",), _NARROW, 2e4, "left of zero, next to the zeros; the CPU adds the terms up in float64"),
    Deviation(("special.log_ndtr", "special.bessel_j0"), _F32, 7, "two or three rounding errors more than the CPU's in places"),
    Deviation(("special.airy_ai",), _F32, 3e5, "next to the zeros far left, whose phase is rounded"),
    Deviation(tuple(f"special.{name}" for name in (
        "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
        "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w", "hermite_polynomial_he", "laguerre_polynomial_l",
        "legendre_polynomial_p")), _F32, 4e3, "of degrees up to 300, which multiply the rounding of the argument or of each step"),
)


def unlisted(verdict: Verdict) -> Iterator[str]:
    """What is over the bar and not said above, or by more than is said."""
    if verdict.num_over == 0:
        return
    for deviation in DEVIATIONS:
        if deviation.covers(verdict) and verdict.over_ulp <= deviation.most_ulp:
            return
    yield (
        f"{verdict.op}, {verdict.dtype}: {verdict.num_over} elements are over the bar, by up to {verdict.over_ulp:.3g} ulp; "
        f"{verdict.over}")


def unneeded(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Operators that are listed and not over the bar in any dtype that was measured."""
    found = list(verdicts)
    over = {verdict.op for verdict in found if verdict.num_over}
    for deviation in DEVIATIONS:
        measured = {verdict.op for verdict in found if deviation.covers(verdict)}
        yield from (f"{op}: {deviation.reason}" for op in sorted(measured - over))
