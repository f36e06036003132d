"""One seed, one stream of numbers: in every mode, from every generator, for all operators that draw."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.sampling.cases import CASES, Case

BY_NAME = {case.name: case for case in CASES}
# tests/record/test_rng.py has the others.
RARE = [BY_NAME[name] for name in (
    "log_normal_-bfloat16", "cauchy_-bfloat16", "geometric_-int64", "_standard_gamma-0.5-float32", "poisson-4.0-float32",
    "binomial-8-0.25", "multinomial-replacement", "random_-to-uint8")]


def draw_all() -> list[torch.Tensor]:
    x = torch.linspace(-1, 1, 60, device="tpu").view(3, 4, 5)
    dropped = [F.alpha_dropout(x, 0.5, True), F.feature_alpha_dropout(x, 0.5, True), F.rrelu(x, training=True)]
    return [*(case.draw(None).cpu() for case in RARE), *(d.cpu() for d in dropped)]


def test_the_same_seed_gives_the_same_numbers_in_every_mode():
    results = []
    for mode in ("fused", "strict", "debug"):
        torch.manual_seed(3)
        with torch.tpu.set_eager_mode(mode):
            results.append(draw_all())
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("case", RARE, ids=lambda case: case.name)
def test_every_operator_takes_a_generator(case: Case):
    torch.manual_seed(4)
    default = case.draw(None).cpu()
    state = torch.tpu.get_rng_state()
    generator = torch.Generator("tpu").manual_seed(4)
    assert torch.equal(case.draw(generator).cpu(), default)
    assert torch.equal(torch.tpu.get_rng_state(), state)  # the default generator did not move
    after = generator.get_state()
    second = case.draw(generator).cpu()
    assert not torch.equal(second, default)
    generator.set_state(after)
    assert torch.equal(case.draw(generator).cpu(), second)
    with torch.random.fork_rng(device_type="tpu"):
        torch.tpu.manual_seed_all(4)
        assert torch.equal(case.draw(None).cpu(), default)
    assert torch.equal(torch.tpu.get_rng_state(), state)
