"""Bounds of random numbers, permutations, samples without replacement, and what the distributions of PyTorch make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions, nn

from tests.sampling.cases import NUM_DRAWS, empty, filled
from tests.sampling.test_distributions import LEVEL

DTYPES = (torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.bfloat16)


@pytest.mark.parametrize("low, high", [(-5, 2**32 + 7), (-2**62, 2**62), (-2**63, 2**63 - 1)])
def test_wide_ranges_of_integers(low, high):
    torch.manual_seed(high % 1000)
    values = torch.randint(low, high, (NUM_DRAWS,), device="tpu").cpu().numpy()
    assert values.min() >= low and values.max() < high
    assert stats.kstest(values.astype(np.float64), stats.uniform(float(low), float(high - low)).cdf).pvalue > LEVEL
    assert stats.chisquare(np.bincount(values & 15, minlength=16)).pvalue > LEVEL  # the low bits too


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
def test_random_draws_all_that_the_dtype_holds(dtype):
    """From 0 to the largest integer; of floats, to the end of the integers that are all exact."""
    torch.manual_seed(1)
    end = 2 / torch.finfo(dtype).eps if dtype.is_floating_point else torch.iinfo(dtype).max
    values = empty(dtype).random_().cpu().double()
    assert values.min() >= 0 and values.max() <= end
    jittered = values.numpy() + np.random.default_rng(0).random(NUM_DRAWS)  # no ties
    assert stats.kstest(jittered, stats.uniform(0, end + 1).cdf).pvalue > LEVEL


def test_random_from_the_smallest_integer():
    values = empty(torch.int64).random_(-2**63, None).cpu().numpy()
    assert stats.kstest(values.astype(np.float64), stats.uniform(-2.0**63, 2.0**64).cdf).pvalue > LEVEL


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])
def test_the_end_of_uniform_numbers_is_never_drawn(dtype):
    torch.manual_seed(2)
    values = torch.rand(2**18, dtype=dtype, device="tpu").cpu()
    assert values.min() >= 0 and values.max() < 1
    if dtype != torch.float32:  # every number of the grid is met, the last one below the end as well
        assert len(values.unique()) == 2 / torch.finfo(dtype).eps
    values = torch.empty(2**18, dtype=dtype, device="tpu").uniform_(1000, 1001).cpu()
    assert values.min() >= 1000 and values.max() <= 1001
    assert (torch.empty(2**18, dtype=dtype, device="tpu").exponential_().cpu() > 0).all()


def test_complex_numbers_are_random_in_both_parts():
    torch.manual_seed(3)
    uniform = torch.view_as_real(torch.rand(NUM_DRAWS, dtype=torch.complex64, device="tpu")).cpu().double().numpy()
    normal = torch.view_as_real(torch.randn(NUM_DRAWS, dtype=torch.complex64, device="tpu")).cpu().double().numpy()
    for values, law in ((uniform, stats.uniform()), (normal, stats.norm(0, 0.5**0.5))):
        assert all(stats.kstest(part, law.cdf).pvalue > LEVEL for part in values.T)
        assert stats.spearmanr(*values.T).pvalue > LEVEL


@pytest.mark.parametrize("rate", [5000.0, 1e6, 1e11])
def test_large_poisson_rates(rate):
    torch.manual_seed(4)
    values = torch.poisson(filled(rate, torch.float64)).cpu().numpy()
    normal = (values + np.random.default_rng(0).random(NUM_DRAWS) - 0.5 - rate) / rate**0.5
    assert stats.kstest(normal, stats.norm().cdf).pvalue > LEVEL


def test_every_permutation_is_as_likely():
    torch.manual_seed(5)
    found = Counter(tuple(torch.randperm(4, device="tpu").tolist()) for _ in range(480))  # one program, run each time
    assert set(found) == set(permutations(range(4)))
    assert stats.chisquare(list(found.values())).pvalue > LEVEL


def test_samples_without_replacement():
    """Each pair comes as often as one taken after the other: w_i * w_j / (1 - w_i)."""
    torch.manual_seed(6)
    weights = np.asarray([0.1, 0.0, 0.4, 0.3, 0.2])
    pairs = torch.multinomial(torch.tensor(weights, device="tpu").float().expand(NUM_DRAWS, 5), 2).tolist()
    expected = {(i, j): weights[i] * weights[j] / (1 - weights[i]) for i, j in permutations((0, 2, 3, 4), 2)}
    found = Counter(map(tuple, pairs))
    assert set(found) <= set(expected)
    assert stats.chisquare([found[pair] for pair in expected], [p * NUM_DRAWS for p in expected.values()]).pvalue > LEVEL


DISTRIBUTIONS: dict[str, tuple[Callable[[], distributions.Distribution], Any]] = {
    "Gamma": (lambda: distributions.Gamma(filled(2.5), filled(0.5)), stats.gamma(2.5, scale=2)),
    "Beta": (lambda: distributions.Beta(filled(0.5), filled(2)), stats.beta(0.5, 2)),
    "StudentT": (lambda: distributions.StudentT(filled(3)), stats.t(3)),
    "VonMises": (lambda: distributions.VonMises(filled(0.5), filled(2)), stats.vonmises(2, loc=0.5)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_sampling_from(name):
    torch.manual_seed(7)
    make, law = DISTRIBUTIONS[name]
    values = make().sample().cpu().double().numpy()
    assert stats.kstest(values, law.cdf).pvalue > LEVEL


def test_reparametrised_gradients():
    """d/da E[x] of a gamma with shape a is 1; of a normal with deviation s, d/ds E[x^2] is 2 s."""
    torch.manual_seed(8)
    shape, deviation = (torch.tensor(2.0, device="tpu", requires_grad=True) for _ in range(2))
    distributions.Gamma(shape.expand(NUM_DRAWS), 1.0).rsample().mean().backward()
    distributions.Normal(0.0, deviation.expand(NUM_DRAWS)).rsample().square().mean().backward()
    assert shape.grad is not None and deviation.grad is not None
    assert abs(shape.grad.item() - 1) < 0.05 and abs(deviation.grad.item() - 4) < 0.2


REFUSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole numbers as uniform ones": lambda x: x.int().uniform_(0, 1),
    "an infinite range": lambda x: x.uniform_(-float("inf"), 1),
    "a range wider than the dtype": lambda x: x.uniform_(-3e38, 3e38),
    "a range beyond the dtype": lambda x: x.half().uniform_(0, 1e6),
    "a range turned around": lambda x: x.uniform_(2, 1),
    "an empty range": lambda x: x.random_(5, 3),
    "an empty range from zero": lambda x: torch.randint(0, (4,), device=x.device),
    "integers beyond the dtype": lambda x: torch.randint(300, (4,), dtype=torch.uint8, device=x.device),
    "integers below the dtype": lambda x: x.char().random_(-200, 5),
    "complex whole numbers": lambda x: x.cfloat().random_(),
    "a probability beyond one": lambda x: x.bernoulli_(1.5),
    "whole probabilities": lambda x: torch.bernoulli(x.long()),
    "a tensor of whole probabilities": lambda x: x.bernoulli_(x.long()),
    "whole rates": lambda x: torch.poisson(x.long()),
    "whole shapes": lambda x: torch._standard_gamma(x.long()),
    "no deviation": lambda x: x.log_normal_(0, 0),
    "a negative deviation": lambda x: x.normal_(0, -1),
    "a rate of zero": lambda x: x.exponential_(0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cpu_refuses_is_refused(name):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError) as caught:
            REFUSED[name](torch.zeros(4, device=device))
        assert "fault of torchtpu" not in str(caught.value)


def test_initialisation_is_bounded():
    values = nn.init.trunc_normal_(empty(torch.bfloat16), 0.0, 1.0, -2.0, 2.0).cpu()
    assert values.min() >= -2 and values.max() <= 2
