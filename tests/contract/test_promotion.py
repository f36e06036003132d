"""Result dtypes are the CPU's, for every pair of dtypes and kind of operand. Nothing is computed: dtypes are known at the call."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own: imaginary parts that are dropped

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128)
NUMBERS = (True, 2, 2.5, 2j)

OPERATORS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "pow": operator.pow, "eq": operator.eq, "lt": operator.lt, "and": operator.and_,
    "where": lambda a, b: torch.where(torch.ones(2, dtype=torch.bool, device=a.device), a, b),
}
IN_PLACE: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "add_": operator.iadd, "mul_": operator.imul, "div_": operator.itruediv, "pow_": operator.ipow,
}


def outcome(function: Callable[[Any, Any], torch.Tensor], left: Any, right: Any) -> str:
    """The dtype of the result, or that there is none."""
    try:
        return str(function(left, right).dtype)
    except (RuntimeError, TypeError):
        return "refused"


def operands(device: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {
        "tensor": torch.ones(2, dtype=dtype, device=device), "0-dim": torch.ones((), dtype=dtype, device=device),
        "0-dim on the CPU": torch.ones((), dtype=dtype)}


def wrong(name: str, ours: str, theirs: str) -> bool:
    """Whether two outcomes differ where they must not.

    XLA has no complex numbers of two float16, so what promotes to them is refused. The CPU lacks kernels of remainders and powers
    of bools, and of some more: where it refuses out of place, we may answer.
    """
    return ours != theirs and theirs != "torch.complex32" and (name in IN_PLACE or theirs != "refused")


def differences(table: dict[str, Callable[[Any, Any], torch.Tensor]], name: str) -> list[str]:
    found = []
    for dtype, other in itertools.product(DTYPES, repeat=2):
        if name in ("eq", "pow") and dtype == torch.float16 and other.is_complex:
            continue  # compared as complex numbers of two float16
        expected = operands("cpu", other)
        for kind, right in operands("tpu", other).items():
            ours = outcome(table[name], torch.ones(2, dtype=dtype, device="tpu"), right)
            theirs = outcome(table[name], torch.ones(2, dtype=dtype), expected[kind])
            if wrong(name, ours, theirs):
                found.append(f"{dtype} {name} {other} ({kind}): {ours}, CPU {theirs}")
    for dtype, number in itertools.product(DTYPES, NUMBERS):
        if dtype == torch.float16 and isinstance(number, complex):
            continue  # the same
        if dtype == torch.bool and number is True and name.startswith("pow"):
            continue  # the CPU returns the bool, which has no other power; here it is an int64
        for swap in (False, True) if table is OPERATORS and name != "where" else (False,):
            ours, theirs = (
                outcome(table[name], *((number, x) if swap else (x, number)))
                for x in (torch.ones(2, dtype=dtype, device=device) for device in ("tpu", "cpu")))
            if wrong(name, ours, theirs):
                found.append(f"{dtype} {name} {number!r}, swapped {swap}: {ours}, CPU {theirs}")
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_results_of(name):
    assert differences(OPERATORS, name) == []


@pytest.mark.parametrize("name", IN_PLACE)
def test_results_in_place_of(name):
    """What does not fit back is refused, and the tensor keeps its dtype."""
    assert differences(IN_PLACE, name) == []


def test_joining():
    for dtype, other in itertools.combinations(DTYPES, 2):
        pair = [torch.ones(2, dtype=d, device="tpu") for d in (dtype, other)]
        assert torch.cat(pair).dtype == torch.stack(pair).dtype == torch.promote_types(dtype, other)


def test_the_default_dtype_decides_over_numbers():
    x = torch.ones(2, dtype=torch.int64, device="tpu")
    torch.set_default_dtype(torch.float64)
    try:
        assert (x + 0.5).dtype == (x / 2).dtype == torch.rand(1, device="tpu").dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert (x + 0.5).dtype == (x / 2).dtype == torch.float32


def test_two_devices_mix_only_by_numbers():
    x = torch.ones(2, device="tpu")
    assert torch.equal((x + torch.tensor(2.0)).cpu(), torch.full((2,), 3.0))
    for refused in (lambda: x + torch.ones(2), lambda: torch.where(x > 0, x, torch.ones(2)), lambda: x.add_(torch.ones(1))):
        with pytest.raises(RuntimeError, match="same device"):
            refused()
