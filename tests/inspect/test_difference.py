"""Why a program is compiled again: each kind of difference, from real programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchtpu.inspect
from torchtpu import _C
from torchtpu.graph.difference import Difference
from torchtpu.runtime import known_programs


def tpu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape).to("tpu", dtype)


def difference(first: Callable[[], Any], second: Callable[[], Any]) -> Difference:
    """What was said of the program that the second function makes, after the first made one."""
    for function in (first, second):
        torch.tpu.synchronize()
        kept = function()
        torch.tpu.synchronize()
        del kept
    return newest()


def newest() -> Difference:
    found = torchtpu.inspect.programs()[-1].difference
    assert found is not None
    return found


def chain(x: torch.Tensor) -> torch.Tensor:
    return ((x + 1).exp() * x).tanh().cos()


def test_nothing_similar() -> None:
    x = tpu(3)
    assert difference(lambda: x @ x, lambda: x.sin().cos().tan()).kind == "new"


def test_shape_names_operator_argument_and_both_shapes() -> None:
    found = difference(lambda: chain(tpu(4, 3)), lambda: chain(tpu(2, 3)))
    assert found.kind == "shape"
    assert "aten::add.Tensor (operator 0 of 5) got self: float32[2, 3] where it was float32[4, 3]" in found.text
    assert "4 later operators differ too" in found.text
    assert f"{__file__}:" in found.text


def test_strides_are_told_where_the_shape_is_the_same() -> None:
    square = tpu(3, 3)
    found = difference(lambda: chain(square), lambda: chain(square.t()))
    assert found.kind == "shape"
    assert "float32[3, 3] with strides (1, 3) from element 0 where it was float32[3, 3] with strides (3, 1)" in found.text


def test_dtype() -> None:
    found = difference(lambda: chain(tpu(4)), lambda: chain(tpu(4, dtype=torch.bfloat16)))
    assert found.kind == "dtype"
    assert "bfloat16[4] where it was float32[4]" in found.text


def test_number_that_is_part_of_the_program() -> None:
    x = tpu(3, 4)
    found = difference(lambda: (x + 1).cos().softmax(0), lambda: (x + 1).cos().softmax(1))
    assert found.kind == "argument"
    assert "aten::_softmax (operator 2 of 3) got dim: 1 where it was 0" in found.text


def test_added_operator() -> None:
    x = tpu(4)
    found = difference(lambda: (x + 1).exp().tanh().cos(), lambda: (x + 1).exp().relu().tanh().cos())
    assert found.kind == "operators"
    assert "from operator 2 on (after aten::exp); 1 more: aten::relu" in found.text
    again = difference(lambda: None, lambda: (x + 1).exp().cos().sin())
    assert again.kind == "operators"
    assert "1 more: aten::sin" in again.text
    again = difference(lambda: None, lambda: (x + 1).exp().sin())
    assert again.kind == "operators"
    assert "1 fewer: aten::cos" in again.text


def test_program_cut_at_another_place() -> None:
    x = tpu(4)
    found = difference(lambda: (x + 1).exp().tanh().cos(), lambda: (x + 1).exp().tanh())
    assert found.kind == "end"
    assert "it ended earlier, after 3 operators (synchronize), not 4 operators (synchronize)" in found.text


def test_order() -> None:
    x = tpu(4)
    found = difference(lambda: (x + 1).exp().tanh().cos(), lambda: (x + 1).tanh().exp().cos())
    assert found.kind == "order"
    assert "from operator 1 on, aten::tanh where aten::exp was" in found.text


def test_result_that_became_live_and_dead() -> None:
    x = tpu(4)

    def both() -> Any:
        inner = (x + 1).exp()
        return inner, inner.tanh().cos()

    found = difference(lambda: both()[1], both)
    assert found.kind == "kept"
    assert "the result of aten::exp (operator 1 of 4) is still held by a tensor" in found.text
    _C.clear_programs()
    known_programs.forget()
    found = difference(both, lambda: both()[1])
    assert found.kind == "freed"
    assert "the result of aten::exp (operator 1 of 4) is no longer held" in found.text


def test_wiring() -> None:
    x, y = tpu(4), tpu(4)
    found = difference(lambda: (x + y).exp() * x, lambda: (x + y).exp() * y)
    assert found.kind == "wiring"
    assert "aten::mul.Tensor (operator 2 of 3) reads input 1" in found.text
    assert "where it read input 0" in found.text


def test_memory_that_something_else_holds() -> None:
    x, y = tpu(4096), tpu(4096)
    holder = torchtpu.to_jax(y)
    found = difference(lambda: x.add_(1).mul_(2).sin_(), lambda: y.add_(1).mul_(2).sin_())
    assert found.kind == "memory"
    assert "something else still holds input 0 (float32[4096]), so its memory cannot be reused" in found.text
    del holder


def test_equal_numbers_that_became_different() -> None:
    x = tpu(4)
    found = difference(lambda: (x * 2.5).exp() * 2.5, lambda: (x * 2.5).exp() * 3.5)
    assert found.kind == "numbers"


def test_program_that_was_dropped() -> None:
    x = tpu(5)
    first = chain(x)
    torch.tpu.synchronize()
    _C.clear_programs()
    second = chain(x)
    torch.tpu.synchronize()
    assert newest().kind == "dropped"
    torch.testing.assert_close(first.cpu(), second.cpu())


def test_nearest_is_the_one_with_the_fewest_changes() -> None:
    x, line = tpu(4), []
    for steps in (2, 9, 4):
        y = x + 1
        for _ in range(steps):
            y = y.exp()
        torch.tpu.synchronize()
        line.append(torchtpu.inspect.programs()[-1].key)
    y = x + 1
    for _ in range(5):
        y = y.exp()
    torch.tpu.synchronize()
    assert newest().nearest == line[2]


@pytest.mark.parametrize("num_ops", [2500])
def test_long_programs_take_little_memory(num_ops: int) -> None:
    from torchtpu.graph.difference import Known
    from torchtpu.runtime import executables

    chain(tpu(4))
    torch.tpu.synchronize()
    assert executables.last_executable is not None
    program = executables.last_executable.program
    long = type(program)(**{**vars(program), "nodes": program.nodes * (num_ops // 5)})
    for _ in range(40):
        known_programs.add(long, "here:1")
    assert sum(len(known.ops) for known in known_programs._known) <= known_programs._MAX_NODES
    assert Known.of(long, "here:1").distance(Known.of(program, "there:2")) is None
