"""The gamma function's logarithm and its derivatives, and Hurwitz's zeta function."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from torchtpu.rules._float_bits import copysign
from torchtpu.rules._numbers import constant, float_rule, to_float
from torchtpu.rules._series import chebyshev_series, polynomial
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower, lower_table

# Chebyshev series of lgamma(x) / ((x - 1) (x - 2)) from 0.5 to 3 and from 3 to 8; fitted with 40 digits.
_LGAMMA_NEAR = (
    -1.435497012575362411e-18, 3.494064241874015458e-18, -8.509128175401905767e-18, 2.073363598084662887e-17,
    -5.054910883766592134e-17, 1.233137260968595604e-16, -3.010110271283284726e-16, 7.352595459272878132e-16,
    -1.797221357503132103e-15, 4.396243296659398979e-15, -1.076215240758630399e-14, 2.636777102070500681e-14,
    -6.465854220933822815e-14, 1.587010973416894669e-13, -3.899069950405675632e-13, 9.589528652171644432e-13,
    -2.361128116146315949e-12, 5.82052396201664144e-12, -1.436688987991691427e-11, 3.551107466208523077e-11,
    -8.790476934031151915e-11, 2.179523895564128068e-10, -5.413413585081661394e-10, 1.347128417758247001e-9,
    -3.359327970358883414e-9, 8.396346115994458384e-9, -2.103902661057194307e-8, 5.286623421759878743e-8,
    -1.332569899108219629e-7, 3.370770348717675602e-7, -8.560510993494189043e-7, 2.183996310263932769e-6,
    -5.601434278119440168e-6, 1.445583982855613125e-5, -3.758485690898840526e-5, 9.86113056551924852e-5,
    -2.616969733774081674e-4, 7.048910082035580377e-4, -1.9373470781938533e-3, 5.480868756901195609e-3,
    -1.620888582719528976e-2, 5.164236327824913711e-2, -1.898377029536412646e-1, 9.938392992482564719e-1,
)
_LGAMMA_FAR = (
    2.455480283289658995e-18, -1.054643845698992587e-17, 4.535091813384589348e-17, -1.952635546346391596e-16,
    8.419015287856182245e-16, -3.635498178148592379e-15, 1.572517330249319216e-14, -6.814481278943051716e-14,
    2.959142551769301166e-13, -1.287953900425543554e-12, 5.620321333756035148e-12, -2.45978750655821967e-11,
    1.080162954226170609e-10, -4.761617906515214375e-10, 2.108442181146846003e-9, -9.385223569656946739e-9,
    4.20363387502201273e-8, -1.896897758511849888e-7, 8.63796767256286098e-7, -3.978158069330747005e-6, 1.858569582254025713e-5,
    -8.84734840996567678e-5, 4.320126902667370009e-4, -2.187800286651829176e-3, 1.172488997018703781e-2,
    -6.951632743088678943e-2, 5.252008298627447453e-1,
)
# Stirling's series in the inverse square of the argument (Abramowitz and Stegun, 6.1.41).
_STIRLING = (
    -3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12,
)
# That of its derivative (6.3.18), and from where on.
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_DIGAMMA_FROM = 10
# Bernoulli's numbers of even index over the factorials of the indices, and how many terms of Hurwitz's series are added up.
_EULER_MACLAURIN = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000, -174611 / 802857662698291200000, 77683 / 14101100039391805440000,
    -236364091 / 1693824136731743669452800000,
)
_FEWEST_TERMS = 10
_MOST_TERMS = 1 << 16


def _fitted(x: Array, low: float, high: float, coefficients: tuple[float, ...]) -> Array:
    place = (x - constant((low + high) / 2, x.dtype)) * constant(4 / (high - low), x.dtype)
    return (x - constant(1, x.dtype)) * (x - constant(2, x.dtype)) * chebyshev_series(place, coefficients)


def _positive_lgamma(x: Array) -> Array:
    """Of arguments from 0.5."""
    half, one = constant(0.5, x.dtype), constant(1, x.dtype)
    inverse = jnp.divide(one, x)
    series = inverse * polynomial(inverse * inverse, _STIRLING)
    large = (x - half) * (jnp.log(x) - one) + (series + constant(0.5 * math.log(2 * math.pi) - 0.5, x.dtype))
    small = jnp.where(x < 3, _fitted(x, 0.5, 3, _LGAMMA_NEAR), _fitted(x, 3, 8, _LGAMMA_FAR))
    return jnp.where(x == jnp.inf, x, jnp.where(x < 8, small, large))


def sine_of_pi(x: Array) -> Array:
    """The sine of pi times the argument, exactly zero at whole numbers: what is beyond the nearest is taken off first."""
    whole = jnp.round(x)
    half = whole * constant(0.5, x.dtype)
    sine = jnp.sin((x - whole) * constant(np.pi, x.dtype))
    return jnp.where(half == jnp.floor(half), sine, -sine)


def lgamma(x: Array) -> Array:
    """The logarithm of the size of the gamma function.

    XLA's own has no correct digit close to its zeros, one and two. Differs: the same is true here close to the zeros left of
    zero, one between each two whole numbers from -2 downwards, where two logarithms cancel.
    """
    one, half = constant(1, x.dtype), constant(0.5, x.dtype)
    # Below 0.5 from one more; left of zero reflected (Abramowitz and Stegun, 6.1.17).
    shifted = jnp.where(x < 0, -x, x)
    small = shifted < half
    value = _positive_lgamma(jnp.where(small, shifted + one, shifted))
    value = jnp.where(small, value - jnp.log(shifted), value)
    reflected = jnp.log(constant(np.pi, x.dtype) / jnp.abs(sine_of_pi(x))) - jnp.log(shifted) - value
    value = jnp.where(x < 0, reflected, value)
    value = jnp.where((x < 0) & (shifted < constant(2.0**-60, x.dtype)), -jnp.log(shifted), value)
    value = jnp.where((x == one) | (x == one + one), constant(0, x.dtype), value)  # not minus zero
    pole = (x <= 0) & (x == jnp.floor(x)) | jnp.isinf(x)
    return jnp.where(pole, constant(np.inf, x.dtype), value)


def _positive_digamma(x: Array) -> Array:
    """By recurrence to ten, and the asymptotic series from there (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    total = jnp.zeros_like(x)
    for _ in range(_DIGAMMA_FROM):
        low = x < _DIGAMMA_FROM
        total = total - jnp.where(low, constant(1, x.dtype) / x, constant(0, x.dtype))
        x = jnp.where(low, x + constant(1, x.dtype), x)
    inverse = jnp.divide(constant(1, x.dtype), x)
    square = inverse * inverse
    return total + (jnp.log(x) - constant(0.5, x.dtype) * inverse - square * polynomial(square, _DIGAMMA))


def _digamma(x: Array) -> Array:
    """Reflected left of zero (6.3.7). Poles: an infinity at zero, of the opposite sign; NaN at negative integers."""
    left = x < 0
    value = _positive_digamma(jnp.where(left, constant(1, x.dtype) - x, x))
    angle = constant(np.pi, x.dtype) * (x - jnp.round(x))
    value = jnp.where(left, value - constant(np.pi, x.dtype) / jnp.tan(angle), value)
    value = jnp.where(left & (x == jnp.trunc(x)), constant(np.nan, x.dtype), value)
    return jnp.where(x == 0, copysign(constant(np.inf, x.dtype), -x), value)


def _zeta_limit(q: Array) -> Array:
    """Of an infinite exponent: the power of the first term, but NaN where that is zero, as in ATen."""
    inf, nan = constant(np.inf, q.dtype), constant(np.nan, q.dtype)
    return jnp.where(q == 1, q, jnp.where(q < 1, inf, nan))


def _terms(x: Array, q: Array) -> tuple[Array, Array]:
    """The sum of the first terms of the series, ten at least and all those left of ten, and the place behind them.

    A loop because a power in float64 takes a TPU's compiler seconds: one of them here, not one a term.
    """

    def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, total, place = state
        here = (step < _FEWEST_TERMS) | (place < _FEWEST_TERMS)
        total = total + jnp.where(here, lax.pow(place, -x), constant(0, x.dtype))
        return step + np.int32(1), total, jnp.where(here, place + constant(1, x.dtype), place)

    def more(state: tuple[Array, Array, Array]) -> Array:
        step, _, place = state
        return (step < _FEWEST_TERMS) | jnp.any(place < _FEWEST_TERMS) & (step < _MOST_TERMS)

    start = jnp.where(q < _FEWEST_TERMS - _MOST_TERMS, constant(np.nan, q.dtype), q)
    _, total, place = lax.while_loop(more, body, (jnp.asarray(np.int32(0)), jnp.zeros_like(q), start))
    return total, place


def _rest(x: Array, place: Array) -> Array:
    """The terms from ``place``, ten or more, to infinity, by the formula of Euler and Maclaurin (DLMF, 25.11.7)."""
    one, power = constant(1, x.dtype), lax.pow(place, -x)
    series = jnp.zeros_like(place)
    for j in range(len(_EULER_MACLAURIN), 0, -1):
        step = (x + constant(2 * j - 1, x.dtype)) * (x + constant(2 * j, x.dtype)) / (place * place)
        series = constant(_EULER_MACLAURIN[j - 1], x.dtype) + step * series
    sum_of_terms = power * (place / (x - one) + constant(0.5, x.dtype) + x / place * series)
    return jnp.where((power == 0) & (place < jnp.inf), power, sum_of_terms)  # else infinite factors make NaN, as in ATen


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Hurwitz's zeta function with the poles where ATen has them.

    Differs: NaN where ``q`` is below -65526, from where ATen adds up all terms to zero one by one.
    """
    x, q = jnp.broadcast_arrays(x, q)
    inf, nan = constant(np.inf, x.dtype), constant(np.nan, x.dtype)
    terms, place = _terms(x, q)
    value = terms + _rest(x, place)
    value = jnp.where(x == inf, _zeta_limit(q), value)
    value = jnp.where((q <= 0) & (q == jnp.floor(q)), inf, value)
    return jnp.where(x == 1, inf, jnp.where(x < 1, nan, value))


@lower("aten::polygamma")
def aten_polygamma(ctx: RuleContext, n: int, self: Array) -> Array:
    """aten::polygamma(int n, Tensor self) -> Tensor"""
    (x,) = to_float(ctx, self)
    if n == 0:
        return _digamma(x)
    if n == 1:  # reflected, because the series of zeta is too short far to the left
        reflected = jnp.where(x < 0.5, 1 - x, x)
        # At whole numbers the sine of what is nearly a multiple of pi, as ATen has it: no infinity.
        sine = jnp.where(x == jnp.round(x), jnp.sin(constant(np.pi, x.dtype) * x), sine_of_pi(x))
        value = jnp.where(reflected == jnp.inf, constant(0, x.dtype), zeta(constant(2, x.dtype), reflected))
        ratio = constant(np.pi, x.dtype) / sine
        return jnp.where(x < 0.5, ratio * ratio - value, value)
    factor = math.factorial(n) if n % 2 else -math.factorial(n)
    return jnp.multiply(constant(factor, x.dtype), zeta(constant(n + 1, x.dtype), x))


lower_table({"aten::lgamma": lgamma, "aten::digamma": _digamma}, float_rule)
