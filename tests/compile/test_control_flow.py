"""PyTorch's higher-order operators inside compiled graphs: native control flow, in one program with what is around it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_over

from tests.compile.compare import compare, randn, same
from torchtpu.compile import region


@pytest.fixture(autouse=True)
def in_one_region(regions):
    """Every graph of these tests is one operator, backward passes included."""
    yield
    assert regions and all(regions)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond_with_gradients_and_a_closure(sign):
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * y, lambda x: x.sin() + 1, (x,))

    same(function, sign * randn(3, 2, grad=True).abs().detach().requires_grad_(), randn(3, 2, grad=True))


def test_nested_cond_of_sizes_that_change():
    def function(x: torch.Tensor) -> torch.Tensor:
        inner = lambda x: torch.cond(x.max() > 1, lambda x: x.exp(), lambda x: x.cos(), (x,))  # noqa: E731
        return torch.cond(x.sum() > 0, inner, lambda x: x * x.shape[0], (x,))

    compiled = torch.compile(function, backend="tpu", dynamic=True)
    for rows in (2, 3, 5):
        for factor in (2, -1, 0.1):
            x = torch.ones(rows, 3) * factor
            compare(compiled(x.to("tpu")), function(x))


def test_while_loop_of_tensors_and_numbers():
    def function(x: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return while_loop(lambda i, x: x.sum() < limit, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=torch.int64), x))

    def counted(x: torch.Tensor) -> tuple[int, torch.Tensor]:
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + i), (0, x))

    with torch.device("tpu"):
        got = torch.compile(function, backend="tpu")(torch.ones(3, device="tpu"), torch.tensor(100.0, device="tpu"))
    compare(got, function(torch.ones(3), torch.tensor(100.0)))
    compare(torch.compile(counted, backend="tpu")(torch.ones(3).to("tpu")), (5, torch.ones(3) + 10))


def test_scan_with_gradients_of_all_that_it_reads():
    def function(start: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return scan(lambda carry, row: ((carry @ w + row).tanh(), carry * row), start, x)

    same(function, randn(4, grad=True), randn(6, 4, grad=True), randn(4, 4, grad=True))


def test_scan_over_trees_backwards_and_along_another_dim():
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        carry, rows = scan(
            lambda c, v: ({"a": c["a"] + v[0]}, (v[0] * c["a"], v[1] - v[0])), {"a": x.new_zeros(3)}, (x, y), dim=1, reverse=True)
        return carry["a"], *rows

    same(function, randn(3, 5), randn(3, 5))


def test_map_with_gradients():
    same(lambda x, y: map_over(lambda row, y: row.sin() * y, x, y), randn(4, 3, grad=True), randn(3, grad=True))


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_associative_scan(mode):
    x = randn(7, 3)
    compiled = torch.compile(lambda x: associative_scan(torch.mul, x, 0, combine_mode=mode), backend="tpu")
    compare(compiled(x.to("tpu")), x.cumprod(0))


def test_associative_scan_as_an_operator():
    x = randn(7, 3)
    operator = torch.ops.higher_order.associative_scan
    compiled = torch.compile(lambda x: operator(lambda a, b: (torch.maximum(a, b),), (x,), ())[0], backend="tpu")
    compare(compiled(x.to("tpu")), x.cummax(0).values)


def test_a_function_compiled_once_and_called_twice():
    block = torch.compiler.nested_compile_region(lambda x, w: (x @ w).relu())
    same(lambda x, w: block(block(x, w), w), randn(3, 4, grad=True), randn(4, 4, grad=True))


def test_every_iteration_draws_its_own_numbers():
    def function(x: torch.Tensor) -> torch.Tensor:
        return scan(lambda carry, row: (carry + 1, F.dropout(row, 0.5)), x.new_zeros(()), x)[1]

    x = torch.ones(16, 64, device="tpu")
    compiled = torch.compile(function, backend="tpu")
    torch.manual_seed(0)
    first, second = compiled(x).cpu(), compiled(x).cpu()
    assert len({tuple(row.tolist()) for row in torch.cat([first, second])}) == 32
    assert (first == 0).float().mean().item() == pytest.approx(0.5, abs=0.06)
    torch.manual_seed(0)
    assert torch.equal(compiled(x).cpu(), first)


def test_the_name_of_a_graph_tells_what_it_calls():
    def name(branch: float) -> set[str]:
        torch._dynamo.reset()
        before = set(region._regions)
        function = torch.compile(lambda x: torch.cond(x.sum() > 0, lambda x: x * branch, lambda x: x - 1, (x,)), backend="tpu")
        function(torch.ones(11).to("tpu"))
        return set(region._regions) - before

    assert name(2.0) and name(3.0)
    assert not name(2.0)
