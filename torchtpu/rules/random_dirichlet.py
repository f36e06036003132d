"""The gradient of Dirichlet samples in their concentrations: of a beta-distributed number, in one of its two parameters.

Source: ``dirichlet_grad_one`` (aten/src/ATen/native/Distributions.h); four approximations, each where it is the best.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import constant, to_float
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

# Coefficients of two polynomials: for powers 0 to 2 of one argument, 0 to 2 of the next, 0 to 3 of the last.
_NUMERATOR = (
    ((1.003668233, -0.01061107488, -0.0657888334, 0.01201642863), (0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033),
     (-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013)),
    ((0.221950385, -0.3187676331, 0.01799915743, 0.01074823814), (-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057),
     (0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05)),
    ((-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565),
     (0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181),
     (0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05)),
)
_DENOMINATOR = (
    ((1.0, -0.02924021934, -0.04438342661, 0.007285809825), (0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521),
     (-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149)),
    ((0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273), (0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956),
     (-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05)),
    ((0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05),
     (0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05),
     (-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06)),
)


def _near_zero(x: Array, alpha: Array, beta: Array) -> Array:
    """From the power series of the density."""
    first = lax.digamma(alpha + 1) - lax.digamma(alpha + beta) - jnp.log(x)  # factor + 1 / alpha, which may cancel
    factor, term, series = first - 1 / alpha, jnp.ones_like(x), first / alpha
    for i in range(1, 11):
        k = constant(i, x.dtype)
        term = term * (k - beta) * x / k
        series = series + term / (alpha + k) * (factor + 1 / (alpha + k))
    return _no_nan(x * jnp.power(1 - x, -beta) * series)


def _near_one(x: Array, alpha: Array, beta: Array) -> Array:
    """The same in the other parameter, ``x`` being the distance from one."""
    factor = lax.digamma(alpha + beta) - lax.digamma(beta)
    term, product, slope = jnp.ones_like(x), jnp.ones_like(x), jnp.zeros_like(x)
    series = factor / alpha
    for i in range(1, 9):
        k = constant(i, x.dtype)
        term = term * -x / k
        slope, product = slope * (beta - k) + product, product * (beta - k)
        series = series + term / (alpha + k) * (slope + factor * product)
    return _no_nan(-jnp.power(1 - x, 1 - beta) * series)


def _no_nan(x: Array) -> Array:
    return jnp.where(x != x, constant(0, x.dtype), x)


def _stirling(x: Array) -> Array:
    return 1 + 1 / (12 * x) + 1 / (288 * x * x)


def _saddle(x: Array, alpha: Array, beta: Array) -> Array:
    """For large parameters. Near the mean, where its terms are infinite and cancel, their Taylor polynomial.

    In double precision, as in ATen: next to the polynomial's range, the terms still cancel.
    """
    total = alpha + beta
    mean, spread = alpha / total, jnp.sqrt(alpha * beta / (total + 1)) / total
    poly = 8 * (1 - x) * (135 * beta - 11)
    poly = (453 + 1620 * beta * (1 - x) - 455 * x) * beta + alpha * poly
    poly = 3 * (59 + 180 * beta - 90 * x) * beta**2 + alpha * poly
    poly = (43 + 20 * (16 + 27 * beta) * x) * beta**3 + alpha * poly
    poly = 47 * x * beta**4 + alpha * poly
    scale = (1 + 12 * alpha) * (1 + 12 * beta) / (total * total)
    at_mean = scale / (1 - x) * poly / (12960 * alpha**3 * beta**2 * (1 + 12 * total))

    distance = alpha * (x - 1) + beta * x
    first = 2 * alpha**2 * (x - 1) + alpha * beta * (x - 1) - x * beta**2
    first = first / (jnp.sqrt(2 * alpha / beta) * total * jnp.sqrt(total) * distance * distance)
    ratio = jnp.log(alpha / (total * x))
    pole = jnp.sqrt(8 * alpha * beta / total) / distance
    entropy = beta * jnp.log(beta / (total * (1 - x))) + alpha * ratio
    other = 1 / (entropy * jnp.sqrt(entropy))
    terms = first + ratio / 2 * (pole + jnp.where(x < mean, other, -other))
    front = -x / jnp.sqrt(2 * alpha * beta / total) * _stirling(alpha) * _stirling(beta) / _stirling(total)
    return jnp.where(jnp.abs(x - mean) <= spread / 10, at_mean, front * terms)


def _fitted(x: Array, alpha: Array, beta: Array) -> Array:
    """The gradient for small ``x``, times a fitted rational function."""
    total = alpha + beta
    u = jnp.log(x)
    a = jnp.log(alpha) - u
    b = jnp.log(total) - a

    def polynomial(coefficients: tuple[tuple[tuple[float, ...], ...], ...]) -> Array:
        rows = []
        for row in coefficients:
            p, q, r = (sum(constant(c, x.dtype) * b**k for k, c in enumerate(cell)) for cell in row)
            rows.append(p + a * (q + a * r))
        return rows[0] + u * (rows[1] + u * rows[2])

    return polynomial(_NUMERATOR) / polynomial(_DENOMINATOR) * x * (lax.digamma(total) - lax.digamma(alpha)) / beta


@lower("aten::_dirichlet_grad")
def aten__dirichlet_grad(ctx: RuleContext, x: Array, alpha: Array, total: Array) -> Array:
    """aten::_dirichlet_grad(Tensor x, Tensor alpha, Tensor total) -> Tensor"""
    x, alpha, total = jnp.broadcast_arrays(*to_float(ctx, x, alpha, total))
    beta = total - alpha
    spread = total * x * (1 - x)
    wide = (v.astype(np.float64) for v in (x, alpha, beta))
    value = jnp.where((alpha > 6) & (beta > 6), _saddle(*wide).astype(x.dtype), _fitted(x, alpha, beta))
    value = jnp.where((x >= 0.5) & (spread < 0.75), -_near_one(1 - x, beta, alpha), value)
    return jnp.where((x <= 0.5) & (spread < 2.5), _near_zero(x, alpha, beta), value)
