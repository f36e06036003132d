"""Graphs that cannot be one operator as a whole: as few parts as possible, the same numbers, and one explained warning."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._higher_order_ops import while_loop

from tests.compile.compare import compare, randn, same
from torchtpu.compile.telling import CompileWarning

library = torch.library.Library("torchtpu_tests", "FRAGMENT")
library.define("triple(Tensor x) -> Tensor")
library.define("add_one_(Tensor(a!) x) -> ()")
library.impl("triple", lambda x: x * 3, "CompositeExplicitAutograd")
library.impl("add_one_", lambda x: (x.add_(1), None)[1], "CompositeExplicitAutograd")
torch.library.register_fake("torchtpu_tests::triple", torch.empty_like, lib=library)
torch.library.register_fake("torchtpu_tests::add_one_", lambda x: None, lib=library)


@pytest.fixture
def value_shapes():
    """Dynamo puts operators into graphs whose results are as large as their values say."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def test_an_operator_without_lowering_is_told_with_its_line(regions):
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchtpu_tests.triple(x.exp()).sin() + x

    with pytest.warns(CompileWarning, match=r"torchtpu_tests\.triple.* at .*test_parts\.py:\d+ is not part.*no lowering") as told:
        same(function, randn(3, 2))
    assert len(told) == 1
    assert sorted(regions) == [False, False, True, True]  # the whole graph and the operator are none


def test_it_is_told_once(regions):
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchtpu_tests.triple(x)

    with pytest.warns(CompileWarning):
        same(function, randn(3, 2))
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(function, randn(3, 2))


def test_an_operator_that_writes(regions):
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        torch.ops.torchtpu_tests.add_one_(y)
        return y * 2

    with pytest.warns(CompileWarning, match="auto_functionalized"):
        same(function, randn(3, 2))
    assert sum(regions) == 2


def test_shapes_that_depend_on_values(value_shapes, regions):
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2)[x > 0].sin().sum() + x.cos().sum() + x.nonzero().shape[0]

    with pytest.warns(CompileWarning, match="shape of its result depends on values"):
        same(function, randn(4, 4))
    assert sum(regions) == 2  # before and after the two operators


def test_numbers_read_on_the_host(value_shapes):
    same(lambda x: x * x.sum().item(), randn(4, 4))
    with pytest.warns(CompileWarning, match="reads a value on the host"):
        same(lambda x: x.sum() + x.new_ones(int(x.abs().sum().item())).sum(), randn(4, 4))


def test_gradient_of_a_loop_of_unknown_length(value_shapes):
    def function(x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda x: x.sum() < 50, lambda x: (x * x + 1,), (x,))[0]

    with pytest.warns(CompileWarning, match="while_loop"):
        same(function, randn(3, 2, grad=True))


def test_a_graph_break_is_told_with_its_line_and_reason():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y + 1

    with pytest.warns(CompileWarning, match=r"a graph break at .*test_parts\.py:\d+ .*graph_break.*fullgraph=True") as told:
        same(function, randn(3, 2))
    assert len(told) == 1
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(function, backend="tpu", fullgraph=True)(torch.ones(2).to("tpu"))


def test_graphs_on_the_host_are_left_alone():
    compare(torch.compile(lambda x: x + 1, backend="tpu")(torch.ones(2)), torch.ones(2) + 1)


def test_arithmetic_on_open_sizes_stays_in_the_program(regions):
    compiled = torch.compile(lambda x: x.new_ones(x.shape[0] * 2 + 1).sum() * x, backend="tpu", dynamic=True)
    for rows in (2, 3, 5):
        compare(compiled(torch.ones(rows, 3, device="tpu")), torch.ones(rows, 3) * (2 * rows + 1))
    assert regions == [True]


def test_a_break_that_ends_a_frame_is_told_with_its_reason():
    class Talkative(torch.nn.Module):
        @property
        def function(self):
            torch._dynamo.graph_break("while a property is read")
            return torch.sin

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            return self.function(y)

    with pytest.warns(CompileWarning, match="while a property is read"):
        torch.compile(Talkative().to("tpu"), backend="tpu")(randn(3, 2).to("tpu"))
