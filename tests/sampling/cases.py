"""Random operators and the distributions they must follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

NUM_DRAWS = 20_000

Generator = torch.Generator | None


@dataclass(frozen=True)
class Case:
    """One operator: how to draw from it, and what its numbers are distributed as.

    Attributes:
        draw: makes ``NUM_DRAWS`` independent numbers with a generator.
        law: the frozen distribution of scipy, before rounding to the dtype.
        dtype: what ``draw`` must return.
    """

    name: str
    draw: Callable[[Generator], torch.Tensor]
    law: Any
    dtype: torch.dtype = torch.float32


def empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Where an in-place operator draws."""
    return torch.zeros(NUM_DRAWS, dtype=dtype, device="tpu")


def filled(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The same parameter for every draw."""
    return torch.full((NUM_DRAWS,), value, dtype=dtype, device="tpu")


def _factory(function: Callable[..., torch.Tensor], dtype: torch.dtype, *leading: Any) -> Callable[[Generator], torch.Tensor]:
    return lambda generator: function(*leading, (NUM_DRAWS,), dtype=dtype, device="tpu", generator=generator)


def _in_place(name: str, dtype: torch.dtype, *parameters: float) -> Callable[[Generator], torch.Tensor]:
    return lambda generator: getattr(empty(dtype), name)(*parameters, generator=generator)


def _continuous(dtype: torch.dtype) -> list[Case]:
    rows: list[tuple[str, Callable[[Generator], torch.Tensor], Any]] = [
        ("rand", _factory(torch.rand, dtype), stats.uniform()),
        ("randn", _factory(torch.randn, dtype), stats.norm()),
        ("uniform_", _in_place("uniform_", dtype, -3, 5), stats.uniform(-3, 8)),
        ("normal_", _in_place("normal_", dtype, 2, 0.5), stats.norm(2, 0.5)),
        ("log_normal_", _in_place("log_normal_", dtype, 0.5, 0.25), stats.lognorm(0.25, scale=np.exp(0.5))),
        ("exponential_", _in_place("exponential_", dtype, 2.5), stats.expon(scale=1 / 2.5)),
        ("cauchy_", _in_place("cauchy_", dtype, 1, 2), stats.cauchy(1, 2)),
    ]
    few = rows if dtype in (torch.float32, torch.bfloat16) else rows[:3]
    return [Case(f"{name}-{str(dtype)[6:]}", draw, law, dtype) for name, draw, law in few]


def _gamma(shape: float, dtype: torch.dtype) -> Case:
    def draw(generator: Generator) -> torch.Tensor:
        return torch._standard_gamma(filled(shape, dtype), generator=generator)

    return Case(f"_standard_gamma-{shape}-{str(dtype)[6:]}", draw, stats.gamma(shape), dtype)


CONTINUOUS: list[Case] = [
    *(case for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16) for case in _continuous(dtype)),
    Case("normal-tensors", lambda g: torch.normal(filled(2), filled(0.5), generator=g), stats.norm(2, 0.5)),
    Case("normal-mean", lambda g: torch.normal(filled(2), 0.5, generator=g), stats.norm(2, 0.5)),
    Case("normal-std", lambda g: torch.normal(2.0, filled(0.5), generator=g), stats.norm(2, 0.5)),
    Case("normal-size", lambda g: torch.normal(2.0, 0.5, (NUM_DRAWS,), generator=g, device="tpu"), stats.norm(2, 0.5)),
    Case("trunc_normal_", lambda g: torch.nn.init.trunc_normal_(empty(), 0.5, 2.0, -1.0, 1.5, generator=g),
         stats.truncnorm(-0.75, 0.5, 0.5, 2.0)),
    Case("xavier_uniform_", lambda g: torch.nn.init.xavier_uniform_(empty().view(100, -1), generator=g).flatten(),
         stats.uniform(-(6 / 300) ** 0.5, 2 * (6 / 300) ** 0.5)),
    *(_gamma(shape, torch.float32) for shape in (0.05, 0.5, 300.0)),
    _gamma(2.5, torch.float64),
    Case("_sample_dirichlet", lambda g: torch._sample_dirichlet(
        torch.tensor([0.5, 2.0, 1.5], device="tpu").expand(NUM_DRAWS, 3), generator=g)[:, 1], stats.beta(2, 2)),
]


def _discrete(dtype: torch.dtype) -> list[Case]:
    rows: list[tuple[str, Callable[[Generator], torch.Tensor], Any]] = [
        ("geometric_", _in_place("geometric_", dtype, 0.3), stats.geom(0.3)),
        ("bernoulli_", _in_place("bernoulli_", dtype, 0.3), stats.bernoulli(0.3)),
        ("random_-to", _in_place("random_", dtype, 17), stats.randint(0, 17)),
        ("random_-from-to", _in_place("random_", dtype, 3, 20), stats.randint(3, 20)),
        ("randint", lambda g: torch.randint(40, (NUM_DRAWS,), dtype=dtype, device="tpu", generator=g), stats.randint(0, 40)),
    ]
    return [Case(f"{name}-{str(dtype)[6:]}", draw, law, dtype) for name, draw, law in rows]


def _poisson(rate: float, dtype: torch.dtype = torch.float32) -> Case:
    return Case(f"poisson-{rate}-{str(dtype)[6:]}", lambda g: torch.poisson(filled(rate, dtype), generator=g), stats.poisson(rate),
                dtype)


def _binomial(count: int, probability: float) -> Case:
    return Case(f"binomial-{count}-{probability}", lambda g: torch.binomial(filled(count), filled(probability), generator=g),
                stats.binom(count, probability))


_WEIGHTS = (0.5, 0.0, 2.0, 1.5)
_WEIGHTED = stats.rv_discrete(values=(range(4), [0.125, 0, 0.5, 0.375]))


def _weights(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(_WEIGHTS, dtype=dtype, device="tpu")


DISCRETE: list[Case] = [
    *(case for dtype in (torch.float32, torch.int64, torch.uint8) for case in _discrete(dtype)),
    Case("bernoulli", lambda g: torch.bernoulli(filled(0.3), generator=g), stats.bernoulli(0.3)),
    Case("bernoulli-bfloat16", lambda g: torch.bernoulli(filled(0.25, torch.bfloat16), generator=g), stats.bernoulli(0.25),
         torch.bfloat16),
    Case("bernoulli-p", lambda g: torch.bernoulli(empty(), 0.3, generator=g), stats.bernoulli(0.3)),
    Case("bernoulli_-tensor", lambda g: empty(torch.int32).bernoulli_(filled(0.3), generator=g), stats.bernoulli(0.3), torch.int32),
    Case("bernoulli_-bool", lambda g: empty(torch.bool).bernoulli_(0.3, generator=g), stats.bernoulli(0.3), torch.bool),
    Case("random_-bool", lambda g: empty(torch.bool).random_(generator=g), stats.bernoulli(0.5), torch.bool),
    *(_poisson(rate) for rate in (0.5, 4.0, 50.0)),
    _poisson(9.5, torch.float64),
    *(_binomial(*parameters) for parameters in ((8, 0.25), (8, 0.9), (100, 0.4), (1000, 0.002))),
    Case("multinomial-replacement", lambda g: torch.multinomial(_weights(), NUM_DRAWS, True, generator=g), _WEIGHTED, torch.int64),
    Case("multinomial-rows", lambda g: torch.multinomial(_weights().expand(NUM_DRAWS // 4, 4), 4, True, generator=g).flatten(),
         _WEIGHTED, torch.int64),
    Case("multinomial-one", lambda g: torch.multinomial(_weights(torch.float16).expand(NUM_DRAWS, 4), 1, generator=g)[:, 0],
         _WEIGHTED, torch.int64),
]
CASES = CONTINUOUS + DISCRETE
