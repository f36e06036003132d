"""Random chains of views, writes and reads agree with CPU exactly, overlapping and empty ones included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

Tensor = torch.Tensor
DTYPES = [torch.float32, torch.int32, torch.int64, torch.bfloat16, torch.bool, torch.float64, torch.uint8, torch.complex64]
SHAPES = [(6,), (2, 3), (3, 2, 2), (4, 1), (0, 3), (2, 0, 2), (), (1,), (3, 4), (2, 2, 2, 1)]


def dim(t: Tensor, a: int) -> int:
    return a % max(t.ndim, 1)


def sliced(t: Tensor, a: int, b: int) -> Tensor:
    index = [slice(None)] * t.ndim
    start = b % (t.shape[dim(t, a)] + 1)
    index[dim(t, a)] = slice(start, None, 1 + b % 2)
    return t[tuple(index)]


def windows(t: Tensor, a: int, b: int) -> Tensor:
    """Overlapping: neighbours share elements."""
    size = min(2, t.shape[dim(t, a)])
    return t.unfold(dim(t, a), size, 1)


def strided(t: Tensor, a: int, b: int) -> Tensor:
    """Arbitrary strides over the storage, from inside of it."""
    available = t.untyped_storage().nbytes() // t.element_size()
    offset = b % (available + 1)
    rows, row_stride, stride = 1 + a % 3, a % 4, b % 3
    columns = 2 if offset + (rows - 1) * row_stride + stride < available else 0
    return t.as_strided((rows, columns), (row_stride, stride), offset)


VIEWS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "slice": sliced,
    "transpose": lambda t, a, b: t.transpose(dim(t, a), dim(t, b)),
    "select": lambda t, a, b: t.select(dim(t, a), b % t.shape[dim(t, a)]),
    "unsqueeze": lambda t, a, b: t.unsqueeze(a % (t.ndim + 1)),
    "squeeze": lambda t, a, b: t.squeeze(),
    "expand": lambda t, a, b: t.unsqueeze(0).expand(a % 3, *t.shape),
    "reshape": lambda t, a, b: t.reshape(-1),
    "view": lambda t, a, b: t.view(t.shape[::-1]),
    "diagonal": lambda t, a, b: t.diagonal(a % 3 - 1, 0, 1),
    "narrow": lambda t, a, b: t.narrow(dim(t, a), b % (t.shape[dim(t, a)] + 1), 0),
    "windows": windows,
    "strided": strided,
    "chunk": lambda t, a, b: t.chunk(2, dim(t, a))[-1],
    "bits": lambda t, a, b: t.view({4: torch.int32, 8: torch.int64, 2: torch.int16, 1: torch.uint8}[t.element_size()]),
    "real": lambda t, a, b: torch.view_as_real(t) if t.is_complex() else t.detach(),
    "conj": lambda t, a, b: t.conj(),
    "transpose_": lambda t, a, b: t.detach().transpose_(dim(t, a), dim(t, b)),
    "unsqueeze_": lambda t, a, b: t.detach().unsqueeze_(0),
}
COPIES: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "clone": lambda t, a, b: t.clone(),
    "contiguous": lambda t, a, b: t.contiguous(),
    "cast": lambda t, a, b: t.real.to(DTYPES[a % len(DTYPES)]),
    "plus": lambda t, a, b: t + b % 3,
    "flip": lambda t, a, b: t.flip(dim(t, a)),
    "sum": lambda t, a, b: t.sum(dim(t, a), keepdim=True).to(t.dtype),
    "channels_last": lambda t, a, b: t.reshape(1, 1, 1, -1).clone(memory_format=torch.channels_last),
}
WRITES: dict[str, Callable[[Tensor, int, int], object]] = {
    "add_": lambda t, a, b: t.add_(b % 3),
    "mul_": lambda t, a, b: t.mul_(2),
    "fill_": lambda t, a, b: t.fill_(b % 5),
    "zero_": lambda t, a, b: t.zero_(),
    "neg_": lambda t, a, b: t.neg_(),
    "set_item": lambda t, a, b: t.__setitem__(a % t.shape[0], b % 7),
    "set_slice": lambda t, a, b: sliced(t, a, b).fill_(3),
    "set_mask": lambda t, a, b: t.masked_fill_(t.real > b % 3 if t.dtype != torch.bool else t, 1),
    "set_index": lambda t, a, b: t.__setitem__(torch.tensor([a % t.shape[0], b % t.shape[0]]), 4),
    "index_add_": lambda t, a, b: t.index_add_(0, torch.tensor([0, 0], device=t.device), t[:1].expand(2, *t.shape[1:]).clone()),
    "add_own_row": lambda t, a, b: t.add_(t[b % t.shape[0]].clone()),
    "out": lambda t, a, b: torch.add(t.clone(), 1, out=t),
    "foreach": lambda t, a, b: torch._foreach_add_([t, t.clone()], 1),
}
PAIRS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "copy_": lambda t, other: t.copy_(other),
    "add_other_": lambda t, other: t.add_(other),
    "where": lambda t, other: torch.where(t.real > 0, t, other),
    "plus_other": lambda t, other: t + other,
    "cat": lambda t, other: torch.cat([t.reshape(-1), other.reshape(-1)]),
    "set_": lambda t, other: t.detach().set_(other.detach()),
}
WROTE = {*WRITES, "copy_", "add_other_"}
ORDERED = WROTE - {"fill_", "zero_", "set_slice", "set_mask"}
ALL = [*VIEWS, *VIEWS, *COPIES, *WRITES, *WRITES, *PAIRS, "read"]


def overlaps(t: Tensor) -> bool:
    """Whether two elements lie in one place."""
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        places = (places[:, None] + torch.arange(size) * stride).flatten()
    return len(places.unique()) < len(places)


def shares(t: Tensor, other: Tensor) -> bool:
    """Whether two tensors are different views of one storage."""
    return t.untyped_storage()._cdata == other.untyped_storage()._cdata and layout(t) != layout(other)


@dataclass
class World:
    """The same tensors on one device; ``reads`` are snapshots, which later writes must not reach."""

    tensors: list[Tensor] = field(default_factory=list)
    reads: list[Tensor] = field(default_factory=list)
    frozen: set[int] = field(default_factory=set)

    def apply(self, name: str, a: int, b: int) -> None:
        t = self.tensors[a % len(self.tensors)]
        other = self.tensors[b % len(self.tensors)]
        if name == "read":
            self.reads.append(t.clone())
            return
        if name in ORDERED and (overlaps(t) or (name in PAIRS and shares(t, other))):
            return  # what CPU leaves there depends on the order in which it goes through the elements
        if name in WROTE and t.untyped_storage()._cdata in self.frozen:
            return
        if name in PAIRS:
            result = PAIRS[name](t, other)
        else:
            result = (VIEWS.get(name) or COPIES.get(name) or WRITES[name])(t, a // 2, b)
        if name == "bits" and t.dtype not in (torch.int32, torch.int64, torch.uint8):
            self.frozen.add(t.untyped_storage()._cdata)  # whole numbers there would be subnormals, which XLA flushes, or no bools
        if isinstance(result, torch.Tensor) and result is not t:
            odd = name not in VIEWS and (overlaps(t) or (name in PAIRS and overlaps(other)))  # CPU derives odd strides from such
            self.tensors.append(result.contiguous() if odd else result)

    def everything(self) -> Tensor:
        """All values in one tensor, so that a program reads them at once."""
        flat = []
        for t in [*self.tensors, *self.reads]:
            t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
            flat.append(t.resolve_neg().reshape(-1).double())
        return torch.cat(flat).cpu()


def normal(values: Tensor) -> Tensor:
    """NaNs made equal; and zeros for subnormals, which bit views make."""
    return values.nan_to_num(99.0).where(values.abs() > torch.finfo(torch.float32).tiny, 0.0)


def layout(t: Tensor) -> tuple[Any, ...]:
    """All that tells tensors apart but their elements; a stride along which nothing lies says nothing."""
    strides = [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1 and t.numel()]
    return t.shape, t.dtype, strides, t.numel() and t.storage_offset(), t.is_conj(), t.is_neg()


def check(base: tuple[int, ...], dtype: torch.dtype, steps: list[tuple[str, int, int]]) -> None:
    torch.manual_seed(0)
    start = torch.randint(0, 5, base).to(dtype)
    cpu, tpu = World([start.clone()]), World([start.to("tpu")])
    done = []
    for name, a, b in steps:
        known = len(cpu.tensors)
        try:
            cpu.apply(name, a, b)
        except (RuntimeError, IndexError, ZeroDivisionError):
            assert len(cpu.tensors) == known
            continue  # not a step that PyTorch allows here
        tpu.apply(name, a, b)
        done.append((name, a, b))
        assert layout(cpu.tensors[-1]) == layout(tpu.tensors[-1]), done
    expected, found = (normal(world.everything()) for world in (cpu, tpu))
    assert torch.equal(expected, found), f"{base}, {dtype}, {done}"


steps = st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=14)
profile = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=100, **profile)
@given(st.sampled_from(SHAPES), st.sampled_from(DTYPES), steps)
def test_chains_agree_with_cpu(base, dtype, steps):
    check(base, dtype, steps)


@settings(max_examples=8, **profile)
@given(st.sampled_from(SHAPES), st.sampled_from(DTYPES), steps)
def test_chains_agree_with_cpu_operator_by_operator(base, dtype, steps):
    with torch.tpu.set_eager_mode("strict"):
        check(base, dtype, steps)


def test_writes_reach_views_and_views_reach_their_base():
    base = torch.zeros(4, 6).to("tpu")
    row, window, column = base[1], base.unfold(1, 3, 1), base.t()[2]
    row.add_(1)
    column.mul_(5).add_(2)
    base.view(-1)[::7] = 9
    snapshot = window.clone()
    base.zero_()
    expected = torch.zeros(4, 6)
    expected[1] += 1
    expected[:, 2] = expected[:, 2] * 5 + 2
    expected.view(-1)[::7] = 9
    assert torch.equal(snapshot.cpu(), expected.unfold(1, 3, 1))
    assert window.sum().item() == 0
    assert base.data_ptr() == row._base.data_ptr()


def test_a_write_through_every_kind_of_window():
    """Views of one buffer in different dtypes see each other's bits."""
    x = torch.zeros(4, device="tpu")
    x.view(torch.int32)[1] = 0x3F800000
    x.view(torch.int16)[5] = 0x4000
    assert x.cpu().tolist() == [0.0, 1.0, 2.0, 0.0]
    c = torch.zeros(2, dtype=torch.complex64, device="tpu")
    torch.view_as_real(c)[:, 1] = 3
    c.conj().imag.add_(1)
    reference = torch.zeros(2, dtype=torch.complex64)
    torch.view_as_real(reference)[:, 1] = 3
    reference.conj().imag.add_(1)
    assert torch.equal(c.cpu(), reference)


def test_writes_through_conjugate_and_negative_views():
    """They are lazy bits of the view, so the buffer gets the opposite of what is written."""
    results = []
    for device in ("cpu", "tpu"):
        c = torch.zeros(4, dtype=torch.complex64, device=device)
        value = torch.tensor([1 + 2j, 3 - 4j], device=device)
        c.conj()[:2].copy_(value)
        c[2:].copy_(value.conj())
        c.conj()[3] = 5 + 6j
        c.conj().imag[:1].copy_(torch.ones(1, device=device))
        c.conj().mul_(1j)
        results.append(c.cpu())
    assert torch.equal(*results)


@pytest.mark.parametrize("name", ["add_", "mul_", "fill_", "zero_", "neg_", "out", "foreach", "set_item"])
def test_a_write_to_overlapping_memory_is_refused_where_cpu_refuses(name):
    outcomes = []
    for device in ("cpu", "tpu"):
        try:
            WRITES[name](torch.zeros(1, 3, device=device).expand(4, 3), 0, 2)
            outcomes.append("allowed")
        except RuntimeError as error:
            outcomes.append(str(error).split(".")[0])
    assert outcomes[0] == outcomes[1]


def test_lists_of_tensors_that_share_elements_are_written_in_turn():
    results = []
    for device in ("cpu", "tpu"):
        x, y = torch.arange(4.0, device=device), torch.ones(4, device=device)
        torch._foreach_add_([x, x], 1)
        torch._foreach_mul_([x[:3], x[1:]], 2)
        torch._foreach_add_([x, y], [y, x])
        results += [x.cpu(), y.cpu()]
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_in_place_metadata_operators():
    x = torch.arange(6).to("tpu")
    y = x.view(2, 3)
    y.t_()
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.add_(10)
    assert x.cpu().tolist() == list(range(10, 16))
    assert y.cpu().tolist() == torch.arange(10, 16).view(2, 3).t().tolist()
