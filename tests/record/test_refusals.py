"""What the CPU refuses at the call, the device refuses at the call: found by tests/fuzz."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchtpu.errors import UnsupportedDtypeError


def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


def ints(*shape: int, device: str) -> torch.Tensor:
    return ones(*shape, dtype=torch.int64, device=device)


def bools(*shape: int, device: str) -> torch.Tensor:
    return ones(*shape, dtype=torch.bool, device=device)


def complexes(*shape: int, device: str) -> torch.Tensor:
    return ones(*shape, dtype=torch.complex64, device=device)


def index(*places: int, device: str) -> torch.Tensor:
    return torch.tensor(places, device=device)


def whole_and_part(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = ones(4, device=device)
    return x[1:], x[:-1]


def square_and_transposed(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = ones(2, 2, device=device)
    return x, x.T


CALLS: dict[str, Callable[[str], object]] = {
    "bool minus float": lambda d: bools(2, device=d) - ones(2, device=d),
    "float minus a number that is a bool": lambda d: ones(2, device=d) - True,
    "number minus bool": lambda d: 1 - bools(2, device=d),
    "list minus bools": lambda d: torch._foreach_sub([ones(2, device=d)], [bools(2, device=d)]),
    "int into bool": lambda d: bools(2, device=d).mul_(2),
    "float into int": lambda d: ints(2, device=d).mul_(torch.tensor(0.5, device=d)),
    "complex into float": lambda d: ones(2, device=d).add_(1j),
    "floats into a list of ints": lambda d: torch._foreach_mul_([ints(2, device=d)], [ones(2, device=d)]),
    "number into a list of ints": lambda d: torch._foreach_mul_([ints(2, device=d)], [0.5]),
    "sum of products into int": lambda d: ints(2, device=d).addcmul_(ones(2, device=d), ones(2, device=d)),
    "fraction as alpha of ints": lambda d: ints(2, device=d).add(ints(2, device=d), alpha=0.5),
    "complex alpha": lambda d: ones(2, device=d).add(ones(2, device=d), alpha=1j),
    "complex fill": lambda d: ones(2, device=d).fill_(1j),
    "complex masked fill": lambda d: ones(2, device=d).masked_fill_(bools(2, device=d), 1j),
    "numbers joined": lambda d: torch.cat([ones(device=d), ones(device=d)], -1),
    "joined into another dtype": lambda d: torch.cat([ones(2, device=d)], out=ints(2, device=d)),
    "added to its neighbours": lambda d: torch.Tensor.add_(*whole_and_part(d)),
    "chosen into its neighbours": lambda d: (x := ones(4, device=d), torch.where(x[1:] > 0, x[1:], x[1:], out=x[:-1])),
    "copied to its neighbours": lambda d: torch.Tensor.copy_(*whole_and_part(d)),
    "written beside what is read": lambda d: (x := ones(4, device=d), torch.add(x[1:], 1, out=x[:-1])),
    "added to its transpose": lambda d: torch.Tensor.add_(*square_and_transposed(d)),
    "put into itself": lambda d: (x := ones(2, 2, device=d)).index_put_((index(0, 1, device=d),), x),
    "bools to the power of bools": lambda d: bools(2, device=d).pow(bools(2, device=d)),
    "bool to the power of bools": lambda d: True ** bools(2, device=d),
    "ints to a negative power": lambda d: ints(2, device=d) ** -1,
    "bools to a power, in place": lambda d: bools(2, device=d).pow_(2),
    "ints to a fraction, in place": lambda d: ints(2, device=d).pow_(0.5),
    "permutation beyond uint8": lambda d: torch.randperm(257, dtype=torch.uint8, device=d),
    "permutation beyond int8": lambda d: torch.randperm(200, out=ones(200, dtype=torch.int8, device=d)),
    "permutation beyond float16": lambda d: torch.randperm(2050, dtype=torch.float16, device=d),
    "permutation of bools": lambda d: torch.randperm(2, dtype=torch.bool, device=d),
    "samples for other channels": lambda d: torch.ops.aten.fractional_max_pool3d(
        ones(4, 7, 7, 7, device=d), [2, 2, 2], [3, 3, 3], ones(4, 1, 3, device=d)),
    "samples for fewer images": lambda d: torch.ops.aten.fractional_max_pool3d(
        ones(2, 4, 7, 7, 7, device=d), [2, 2, 2], [3, 3, 3], ones(1, 4, 3, device=d)),
    "maxima in windows of a matrix": lambda d: torch.nn.functional.max_pool2d(ones(3, 4, device=d), 2),
    "order of complex numbers": lambda d: complexes(2, device=d).argmax(),
    "comparison of complex numbers": lambda d: complexes(2, device=d) > 1,
    "largest complex number": lambda d: complexes(2, device=d).max(),
    "product of several dtypes": lambda d: ones(2, 2, device=d) @ ints(2, 2, device=d),
    "bools below zero": lambda d: bools(2, device=d).relu(),
    "variance of ints": lambda d: ints(2, device=d).var(),
    "index into nothing": lambda d: ones(0, 3, device=d)[index(0, device=d)],
    "write into nothing": lambda d: ones(0, 3, device=d).index_put_((index(0, device=d),), torch.tensor(1.0, device=d)),
    "fill of nothing": lambda d: ones(0, 3, device=d).index_fill(0, index(0, device=d), 1),
    "gather from nothing": lambda d: ones(0, 3, device=d).gather(0, ints(1, 3, device=d) * 0),
    "selection from nothing": lambda d: ones(0, 3, device=d).index_select(0, index(0, device=d)),
    "several places of a number": lambda d: ones(device=d).index_select(0, index(0, 0, device=d)),
    "embedding of nothing": lambda d: torch.nn.functional.embedding(index(0, device=d), ones(0, 3, device=d)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_same_kind_of_exception(call):
    with pytest.raises((RuntimeError, IndexError, TypeError)) as expected:
        call("cpu")
    with pytest.raises(expected.type):
        call("tpu")


def test_an_infix_operator_keeps_the_message():
    with pytest.raises(UnsupportedDtypeError, match="tensors of one dtype"):
        ones(2, 2, device="tpu") @ ints(2, 2, device="tpu")
    with pytest.raises(UnsupportedDtypeError, match="integers or bools"):
        ones(2, device="tpu") & ones(2, device="tpu")


def test_a_number_is_assigned_to_itself():
    t = torch.tensor(2.0, device="tpu")
    t[None] = t
    assert t.item() == 2


def test_what_only_looks_like_an_overlap_is_allowed():
    """The same elements in the same order, neighbours that do not touch, and lists whose tensors meet other places."""
    results = []
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0, device=device)
        x.add_(x)
        x[:3].copy_(x[3:])
        torch._foreach_add_([x[:3], x[3:]], [x[:3], x[3:]])
        x.view(2, 3).T.mul_(x.view(2, 3).T)
        results.append(x.cpu())
    assert torch.equal(*results)


def test_a_permutation_fills_its_dtype():
    for count, dtype in ((256, torch.uint8), (128, torch.int8), (2049, torch.float16)):
        assert torch.equal(torch.randperm(count, dtype=dtype, device="tpu").cpu().long().sort().values, torch.arange(count))


def test_bools_to_the_power_of_a_bool_stay_bools():
    for exponent in (True, False):
        x = torch.tensor([True, False])
        for got, expected in ((x.to("tpu") ** exponent, x ** exponent), (x.to("tpu").pow_(exponent), x.clone().pow_(exponent))):
            assert got.dtype == expected.dtype == torch.bool and torch.equal(got.cpu(), expected)


def test_bools_are_shifted_by_ints():
    assert torch.equal((bools(2, device="tpu") << 1).cpu(), bools(2, device="cpu") << 1)
