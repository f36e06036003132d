"""Errors that only a value can cause: in debug mode the CPU's own, at the operator; `check_errors=True` raises in every mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from torchtpu.graph.value_errors import VALUE_ERRORS

Make = Callable[..., torch.Tensor]

REFUSED: dict[str, Callable[[Make], object]] = {
    "embedding": lambda t: F.embedding(t([0, 7]), t([[1.0], [2.0]])),
    "gather": lambda t: t([[1.0, 2.0]]).gather(1, t([[2]])),
    "scatter": lambda t: t([[1.0, 2.0]]).scatter(1, t([[2]]), 1.0),
    "scatter_add_": lambda t: t([[1.0, 2.0]]).scatter_add_(1, t([[2]]), t([[1.0]])),
    "index": lambda t: t([1.0, 2.0])[t([0, 5])],
    "index_put": lambda t: t([1.0, 2.0]).index_put((t([5]),), t(1.0)),
    "index_put_": lambda t: t([1.0, 2.0]).index_put_((t([-3]),), t(1.0)),
    "index_select": lambda t: t([1.0, 2.0]).index_select(0, t([2])),
    "index_add": lambda t: t([1.0, 2.0]).index_add(0, t([2]), t([1.0])),
    "index_copy": lambda t: t([1.0, 2.0]).index_copy(0, t([2]), t([1.0])),
    "index_fill": lambda t: t([1.0, 2.0]).index_fill(0, t([2]), 1.0),
    "take": lambda t: t([1.0, 2.0]).take(t([2])),
    "put": lambda t: t([1.0, 2.0]).put(t([2]), t([1.0])),
    "max_unpool": lambda t: F.max_unpool2d(t([[[[1.0]]]]), t([[[[9]]]]), 2),
    "nll_loss": lambda t: F.nll_loss(t([[1.0, 2.0]]), t([2])),
    "nll_loss2d": lambda t: F.nll_loss(t([[[[1.0]], [[2.0]]]]), t([[[2]]])),
    "multi_margin_loss": lambda t: F.multi_margin_loss(t([[1.0, 2.0]]), t([2])),
    "multilabel_margin_loss": lambda t: F.multilabel_margin_loss(t([[1.0, 2.0]]), t([[2, -1]])),
    "binary_cross_entropy": lambda t: F.binary_cross_entropy(t([2.0]), t([1.0])),
    "bincount": lambda t: torch.bincount(t([-1])),
    "masked_scatter": lambda t: t([1.0, 2.0]).masked_scatter(t([True, True]), t([1.0])),
    "repeat_interleave": lambda t: torch.repeat_interleave(t([-1])),
    "floor_divide": lambda t: t([1]) // t([0]),
    "remainder": lambda t: t([1]) % t([0]),
    "fmod": lambda t: torch.fmod(t([1]), t([0])),
    "div trunc": lambda t: torch.div(t([1]), t([0]), rounding_mode="trunc"),
    "multinomial": lambda t: torch.multinomial(t([-1.0, 2.0]), 1),
    "bernoulli": lambda t: torch.bernoulli(t([2.0])),
    "normal": lambda t: torch.normal(t([0.0]), t([-1.0])),
    "poisson": lambda t: torch.poisson(t([-1.0])),
    "svd": lambda t: torch.linalg.svd(t([[float("nan")]])),
    "assert_async": lambda t: torch._assert_async(t([False])),
}
CHECKED: dict[str, Callable[[Make], object]] = {
    "cholesky": lambda t: torch.linalg.cholesky(t([[-1.0]])),
    "cholesky_ex": lambda t: torch.linalg.cholesky_ex(t([[-1.0]]), check_errors=True),
    "inv": lambda t: torch.linalg.inv(t([[0.0]])),
    "inv_ex": lambda t: torch.linalg.inv_ex(t([[0.0]]), check_errors=True),
    "solve": lambda t: torch.linalg.solve(t([[0.0]]), t([[1.0]])),
    "solve_ex": lambda t: torch.linalg.solve_ex(t([[0.0]]), t([[1.0]]), check_errors=True),
    "lu_factor_ex": lambda t: torch.linalg.lu_factor_ex(t([[0.0]]), check_errors=True),
}


def refused_as_on_cpu(function: Callable[[Make], object]) -> None:
    with pytest.raises(Exception) as wanted:
        function(torch.tensor)
    with pytest.raises(type(wanted.value)) as found:
        function(lambda data: torch.tensor(data, device="tpu"))
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("name", REFUSED)
def test_debug_mode_raises_what_the_cpu_raises(mode, name: str) -> None:
    mode("debug")
    refused_as_on_cpu(REFUSED[name])


@pytest.mark.parametrize("eager_mode", ["fused", "debug"])
@pytest.mark.parametrize("name", CHECKED)
def test_factorisations_that_check_raise_in_every_mode(mode, name: str, eager_mode: str) -> None:
    mode(eager_mode)
    refused_as_on_cpu(CHECKED[name])


def test_the_rehearsal_changes_nothing(mode) -> None:
    """Neither the arguments nor the CPU's random numbers."""
    mode("debug")
    state = torch.get_rng_state()
    probabilities = torch.tensor([0.25, 0.75], device="tpu")
    torch.multinomial(probabilities, 1)
    torch.bernoulli(probabilities)
    counts = torch.tensor([1.0, 2.0], device="tpu")
    counts.index_add_(0, torch.tensor([1], device="tpu"), torch.tensor([1.0], device="tpu"))
    assert counts.tolist() == [1.0, 3.0]
    assert torch.equal(torch.get_rng_state(), state)


def test_integers_that_the_cpu_has_floats_for(mode) -> None:
    """Have no wrong values, so the CPU is not asked; floats still are."""
    mode("debug")
    assert torch.histc(torch.tensor([1, 2, 2], device="tpu"), 2, 1, 2).tolist() == [1, 2]
    refused_as_on_cpu(lambda t: torch.histc(t([1.0, float("nan")])))


def test_every_family_exists() -> None:
    def exists(family: str) -> bool:
        return any(hasattr(torch.ops.aten, name) for name in (family, f"_{family}", f"{family}_"))

    assert [family for family in sorted(VALUE_ERRORS) if not exists(family)] == []
