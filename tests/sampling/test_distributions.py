"""Every random operator follows its distribution: at a fixed seed, no test of it may come out at a probability below ``LEVEL``."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tests.sampling.cases import CASES, CONTINUOUS, DISCRETE, NUM_DRAWS, Case

LEVEL = 1e-4
_NUM_QUANTILES = 2**18  # of a law that is rounded to 16 bits: steps far below what 20,000 draws resolve


def draw_twice(case: Case) -> list[np.ndarray]:
    """Two successive draws in float64, from a seed of the case's own: with one seed, all would stand on the same bits."""
    torch.manual_seed(zlib.crc32(case.name.encode()))
    draws = [case.draw(None).cpu() for _ in range(2)]
    assert all(drawn.dtype == case.dtype and drawn.shape == (NUM_DRAWS,) for drawn in draws)
    return [drawn.double().numpy() for drawn in draws]


def rounded_law(case: Case) -> np.ndarray:
    """The quantiles of a law, as its dtype holds them; uniform numbers come in steps instead, like the CPU's."""
    steps = (np.arange(_NUM_QUANTILES) + 0.5) / _NUM_QUANTILES
    if case.name.startswith(("rand-", "uniform_")):
        resolution = torch.finfo(case.dtype).eps / 2
        steps = np.floor(steps / resolution) * resolution
    return torch.from_numpy(case.law.ppf(steps)).to(case.dtype).double().numpy()


def kolmogorov_smirnov(case: Case, values: np.ndarray) -> float:
    """The probability of a distance as large as this one."""
    if torch.finfo(case.dtype).bits > 16:
        return stats.kstest(values, case.law.cdf).pvalue
    law = np.sort(rounded_law(case))
    points = np.unique(values)
    ours = np.searchsorted(np.sort(values), points, side="right") / len(values)
    distance = np.abs(ours - np.searchsorted(law, points, side="right") / len(law)).max()
    return float(stats.kstwo.sf(distance, len(values)))


def chi_square(law: Any, values: np.ndarray, least_expected: float = 10) -> float:
    """The probability of counts as far from the law's; rare values are counted together."""
    low, high = int(law.ppf(1e-9)), int(law.ppf(1 - 1e-9))
    assert np.array_equal(values, np.round(values))
    assert (law.pmf(np.unique(values)) > 0).all(), "a value that the law does not know"
    expected = law.pmf(np.arange(low, high + 1)) * len(values)
    found = np.bincount(np.clip(values, low, high).astype(np.int64) - low, minlength=len(expected))
    often = expected >= least_expected
    rest = [expected[~often].sum(), found[~often].sum()]
    expected, found = (np.append(kept[often], other) for kept, other in zip((expected, found), rest, strict=True))
    expected, found = expected[expected > 0], found[expected > 0]
    return stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_distribution_and_the_independence_of(case):
    first, second = draw_twice(case)
    assert np.isfinite(first).all()
    if case in CONTINUOUS:
        assert kolmogorov_smirnov(case, first) > LEVEL
    else:
        assert chi_square(case.law, first) > LEVEL
    assert stats.spearmanr(first[1:], first[:-1]).pvalue > LEVEL  # neighbours
    assert stats.spearmanr(first, second).pvalue > LEVEL  # successive draws


def test_the_tests_would_notice():
    """A law that is off by a few hundredths is refused, continuous or discrete, rounded or not."""
    for case, wrong in (
        (CONTINUOUS[1], stats.norm(0.05, 1)),
        (next(c for c in CONTINUOUS if c.name == "randn-bfloat16"), stats.norm(0.05, 1)),
        (DISCRETE[0], stats.geom(0.32)),
    ):
        values = draw_twice(case)[0]
        changed = Case(case.name, case.draw, wrong, case.dtype)
        found = kolmogorov_smirnov(changed, values) if case in CONTINUOUS else chi_square(wrong, values)
        assert found < LEVEL


