"""Values at which operators are evaluated: random ones in the domain, extreme ones, and those that are easily got wrong.

Nothing subnormal: XLA flushes such numbers to zero.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

# Both ends of the values that an operator takes; None is unlimited.
Domain = tuple[float | None, float | None]

SPECIAL = (0.0, -0.0, float("inf"), float("-inf"), float("nan"))
_SEED = 20240229
_COUNT = 500  # of random values of each kind
_PI_PARTS = tuple(k * np.pi / 4 for k in range(1, 13))
_BRANCHES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 7.5, 8.0, 10.0, 11.5, 12.0, 16.0, 20.0, 100.0, 1024.0, *_PI_PARTS)
_PAIRED = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 10.0, 33.0, 1e3, 1e10, 1e-3, 1e-10)
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of numbers of a dtype."""
    return _REAL.get(dtype, dtype)


def _generator() -> np.random.Generator:
    return np.random.default_rng(_SEED)


def _sizes(generator: np.random.Generator, dtype: torch.dtype, count: int, share: float = 1.0) -> np.ndarray:
    """Of either sign, the logarithm uniform over this share of all exponents, around one."""
    info = torch.finfo(dtype)
    low, high = share * np.log2(float(info.tiny)), share * np.log2(float(info.max))
    return generator.choice([-1.0, 1.0], count) * 2.0 ** generator.uniform(low, high, count)


def _neighbours(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The values and, on both sides, what is some units in the last place, or somewhat more, away."""
    steps = np.array([0, 1, 2, 3, 9, 70, 1000]) * float(torch.finfo(dtype).eps)
    return np.concatenate([values * (1 + sign * step) for step in steps for sign in (1, -1)])


def _rounded(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Without those that are subnormal in the dtype."""
    found = torch.from_numpy(np.asarray(values, np.float64)).to(dtype)
    return found[(found == 0) | ~(found.abs() < torch.finfo(dtype).tiny)]


def _inside(domain: Domain, generator: np.random.Generator) -> np.ndarray:
    low, high = domain
    if low is None or high is None:
        start = low or 0.0
        return start + np.concatenate([generator.uniform(0, width, _COUNT) for width in (1, 10, 1000)])
    near = (high - low) * 2.0 ** -generator.uniform(0, 24, _COUNT)
    return np.concatenate([generator.uniform(low, high, _COUNT), low + near, high - near])


def unary(dtype: torch.dtype, domain: Domain = (None, None)) -> list[torch.Tensor]:
    """One argument of some thousand values; those outside of the domain as well, where the CPU says what comes out."""
    generator = _generator()
    info = torch.finfo(dtype)
    powers = 2.0 ** np.arange(np.ceil(np.log2(float(info.tiny))), np.log2(float(info.max)))
    edges = np.array([abs(edge) for edge in domain if edge])
    marked = _neighbours(np.concatenate([_BRANCHES, edges]), dtype)
    ranges = [generator.uniform(-width, width, _COUNT) for width in (1, 4, 20, 110, 1000)]
    limits = _neighbours(np.array([float(info.tiny), float(info.max), float(info.max) ** 0.5, np.log(float(info.max))]), dtype)
    values = [
        SPECIAL, powers, -powers, marked, -marked, limits, -limits, np.arange(-40, 41) / 2, _inside(domain, generator),
        _sizes(generator, dtype, 2 * _COUNT), _sizes(generator, dtype, _COUNT, 0.1), *ranges]
    with np.errstate(over="ignore"):
        return [_rounded(np.concatenate(values), dtype)]


def several(dtype: torch.dtype, count: int, domains: tuple[Domain, ...] = ()) -> list[torch.Tensor]:
    """``count`` arguments: all combinations of marked values, and random ones of like and unlike size."""
    generator = _generator()
    info = torch.finfo(dtype)
    ends = (float(info.max), float(info.tiny)) if count == 2 else (float(info.max) ** 0.5,)
    marked = [*SPECIAL, *(sign * value for value in (*_PAIRED, *ends) for sign in (1, -1))]
    chosen = np.array(list(product(marked, repeat=count)))
    if len(chosen) > 3000:
        chosen = generator.permutation(chosen)[:3000]
    shape, shares = (_COUNT, count), (1.0, 0.1) if count == 2 else (0.3, 0.1)  # of three, two are multiplied with a third
    base = generator.uniform(-4, 4, _COUNT)
    alike = [base * (1 + generator.integers(-4, 5, _COUNT) * float(info.eps)) for _ in range(count)]
    times = [base * generator.integers(-9, 10, _COUNT) for _ in range(count - 1)]
    tiny_beside = [base * 2.0 ** -generator.uniform(0, 30, _COUNT) for _ in range(count - 1)]
    kinds = [
        chosen, np.stack(alike, 1), np.stack([*times, base], 1), np.stack([*tiny_beside, base], 1),
        *(generator.uniform(-width, width, shape) for width in (1, 10, 100)), generator.uniform(0, 1, shape),
        generator.uniform(0, 20, shape), *(_sizes(generator, dtype, _COUNT * count, share).reshape(shape) for share in shares),
        np.abs(_sizes(generator, dtype, _COUNT * count, 0.1)).reshape(shape),
        np.stack([generator.uniform(-1, 1, _COUNT), *(generator.integers(0, 30, _COUNT) for _ in range(count - 1))], 1),
    ]
    if domains:
        inside = [generator.permutation(_inside(domain, generator)) for domain in domains]
        least = min(map(len, inside))
        kinds.append(np.stack([values[:least] for values in inside], 1))
    with np.errstate(over="ignore"):
        found = torch.from_numpy(np.concatenate(kinds).astype(np.float64)).to(dtype)
    subnormal = (found != 0) & (found.abs() < info.tiny)
    return list(found[~subnormal.any(1)].unbind(1))


def complex_numbers(dtype: torch.dtype, count: int) -> list[torch.Tensor]:
    """``count`` complex arguments: finite, as special values of two parts mean less."""
    real = real_dtype(dtype)
    generator = _generator()
    made = []
    for _ in range(count):
        parts = []
        for _ in range(2):
            marked = generator.choice([0.0, 0.25, 0.5, 1.0, -1.0, -0.5, 2.0, -3.0, np.pi / 2], _COUNT)
            kinds = [marked, *(generator.uniform(-w, w, _COUNT) for w in (1, 4, 20)), _sizes(generator, real, _COUNT, 0.1)]
            parts.append(torch.from_numpy(np.concatenate(kinds)).to(real))
        made.append(torch.complex(*parts))
    return made


def rows(dtype: torch.dtype) -> tuple[torch.Tensor, np.ndarray]:
    """A matrix whose rows are reduced, and the kind of each row: rounding is luck, so rows of a kind are judged together."""
    generator = _generator()
    shape = (12, 300)
    normal = generator.standard_normal(shape)
    wide = generator.choice([-1.0, 1.0], shape) * 2.0 ** generator.uniform(-12, 12, shape)
    cancelling = np.concatenate([normal[:, :150], -normal[:, :150] * (1 + 2.0 ** -10)], 1)
    near_one = 1 + 0.01 * normal
    special = np.where(generator.uniform(0, 1, shape) < 0.01, generator.choice(SPECIAL, shape), normal)
    infinite = np.where(generator.uniform(0, 1, shape) < 0.01, float("inf"), normal)
    lowest = np.full(shape, float("-inf"))
    kinds = [
        normal, np.abs(normal), 100 + normal, 1000 + normal, wide, cancelling, near_one, 30 * normal,
        np.zeros(shape), -np.zeros(shape), special, infinite, -infinite, lowest]
    return torch.from_numpy(np.concatenate(kinds)).to(dtype), np.repeat(np.arange(len(kinds)), shape[0])
