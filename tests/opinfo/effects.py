"""What a call did, and how it differs from what another one did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten

from tests.opinfo.case import Case, Side, is_plain, tensors

# Relative and absolute; of other dtypes values are the same or wrong.
TOLERANCE = {
    torch.float64: (1e-7, 1e-7), torch.complex128: (1e-7, 1e-7), torch.float32: (1e-4, 1e-4), torch.complex64: (1e-4, 1e-4),
    torch.float16: (4e-3, 4e-3), torch.complex32: (4e-3, 4e-3), torch.bfloat16: (2e-2, 2e-2),
}
_NUMBER_TOLERANCE = 1e-3  # of a Python number, whose dtype is not known
_COMPARED = (bool, int, float, complex, str, torch.dtype, torch.Size, torch.layout, type(None))


# Of which kind of tensor, which of them, the wanted one and the one that came: whether a difference is no fault of ours.
Accepts = Callable[[str, int, torch.Tensor, torch.Tensor], bool]


class Problem(NamedTuple):
    """One difference."""

    outcome: str
    message: str


@dataclass
class Effects:
    """One call, made."""

    side: Side
    result: Any
    processed: Any
    versions: list[int]  # by how much the version counter of each argument grew
    gradients: Sequence[torch.Tensor | None] = ()

    def differentiate(self, second_order: bool) -> None:
        """Gradients of a fixed weighted sum of the results and, of second order, those of a weighted sum of the gradients."""
        outputs = [t for t in tensors(self.processed) if t.requires_grad]
        if not outputs or not self.side.leaves:
            return
        weights = [_weights(t, second_order) for t in outputs]
        self.gradients = torch.autograd.grad(outputs, self.side.leaves, weights, create_graph=second_order, allow_unused=True)
        again = [g for g in self.gradients if g is not None and g.requires_grad]
        if second_order and again:
            self.gradients += torch.autograd.grad(
                again, [*self.side.leaves, *weights], [_weights(t, False) for t in again], allow_unused=True)

    @property
    def is_plain(self) -> bool:
        """Whether all tensors are strided."""
        found = [*self.side.arguments, *tensors(self.result), *(g for g in self.gradients if g is not None)]
        return all(is_plain(t) for t in found)


def run(case: Case, side: Side) -> Effects:
    """Make the call, with a seed that is always the same."""
    torch.manual_seed(1)
    with side.device if case.names_no_device else contextlib.nullcontext():
        result = case.function(*side.args, **side.kwargs)
    grown = [t._version - before for t, before in zip(side.arguments, side.versions, strict=True)]
    return Effects(side, result, case.process(result), grown)


def no_referee(kind: str, place: int, want: torch.Tensor, got: torch.Tensor) -> bool:
    """Accepts nothing beyond the tolerances."""
    return False


def differences(want: Effects, got: Effects, random: bool = False, accepts: Accepts = no_referee) -> Iterator[Problem]:
    """How results and arguments differ from the wanted ones; values are left out if they are random."""
    yield from _structure(want.result, got.result, got.side.device.type)
    yield from _aliasing(want, got)
    for place, (mine, theirs) in enumerate(zip(want.side.arguments, got.side.arguments, strict=True)):
        yield from _metadata(f"argument {place} afterwards", mine, theirs)
    if random:
        return
    unique = want.processed is want.result  # if not, what was written is not unique either
    for place, (mine, theirs) in enumerate(zip(want.side.memory(), got.side.memory(), strict=True) if unique else ()):
        yield from _values("memory", place, mine, theirs, accepts)
    mine, theirs = tensors(want.processed), tensors(got.processed)
    if len(mine) == len(theirs):  # if not, that was told above
        for place, pair in enumerate(zip(mine, theirs, strict=True)):
            yield from _values("result", place, *pair, accepts)


def gradient_differences(want: Effects, got: Effects, random: bool = False, accepts: Accepts = no_referee) -> Iterator[Problem]:
    """How gradients differ from the wanted ones."""
    if len(want.gradients) != len(got.gradients):
        yield Problem("fail", f"{len(got.gradients)} gradients where the CPU has {len(want.gradients)}")
        return
    for place, (mine, theirs) in enumerate(zip(want.gradients, got.gradients, strict=True)):
        if mine is None or theirs is None:
            if mine is not theirs:
                yield Problem("fail", f"gradient {place} is {_presence(theirs)} where the CPU has {_presence(mine)}")
        elif not random or mine.shape != theirs.shape:
            yield from _values("gradient", place, mine, theirs, accepts)


def same_values(one: Effects, other: Effects) -> bool:
    """Whether two calls gave the same to the last bit."""
    pairs = zip([*tensors(one.processed), *one.side.memory()], [*tensors(other.processed), *other.side.memory()], strict=False)
    return all(torch.equal(_bits(a), _bits(b)) for a, b in pairs if is_plain(a) and is_plain(b))


def _weights(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """Fixed and irregular, of modulus one or less; made on the CPU, so that they are the same everywhere."""
    angles = torch.arange(tensor.numel(), dtype=torch.float64).reshape(tensor.shape)
    values = torch.exp(1j * angles) if tensor.is_complex() else torch.cos(angles)
    return values.to(tensor.dtype).to(tensor.device).requires_grad_(requires_grad)


def _structure(want: Any, got: Any, device: str) -> Iterator[Problem]:
    mine, spec = tree_flatten(want)
    theirs, their_spec = tree_flatten(got)
    if type(want) is not type(got) or spec != their_spec:
        yield Problem("fail", f"the structure is {their_spec} where the CPU has {spec}")
        return
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        name = f"result {place}"
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            yield Problem("fail", f"{name} is a {type(b).__name__} where the CPU has a {type(a).__name__}")
        elif isinstance(a, torch.Tensor):
            if b.device.type != device:
                yield Problem("fail", f"{name} is on {b.device}")
            yield from _metadata(name, a, b)
        elif isinstance(a, _COMPARED) and not _same_number(a, b):
            yield Problem("fail", f"{name} is {b!r} where the CPU has {a!r}")


def _metadata(name: str, want: torch.Tensor, got: torch.Tensor) -> Iterator[Problem]:
    for what in ("dtype", "shape", "layout", "requires_grad"):
        mine, theirs = getattr(want, what), getattr(got, what)
        if mine != theirs:
            yield Problem("fail", f"{name} has {what} {_shown(theirs)} where the CPU has {_shown(mine)}")
            return
    if not is_plain(want):
        return
    for what in ("is_conj", "is_neg"):
        if getattr(want, what)() != getattr(got, what)():
            yield Problem("fail", f"{name}: {what}() is {getattr(got, what)()} where the CPU has {getattr(want, what)()}")
    if is_dense(want) and significant_strides(want) != significant_strides(got):
        yield Problem("strides", f"{name} {list(want.shape)} has strides {got.stride()} where the CPU has {want.stride()}")


def _aliasing(want: Effects, got: Effects) -> Iterator[Problem]:
    mine, theirs = _sharing(want), _sharing(got)
    for relation in sorted(mine - theirs):
        yield Problem("aliasing", f"{relation} on the CPU and not here")
    for relation in sorted(theirs - mine):
        yield Problem("aliasing", f"{relation} here and not on the CPU")
    for place, (a, b) in enumerate(zip(want.versions, got.versions, strict=True)):
        if a != b:
            yield Problem("aliasing", f"the version counter of argument {place} grew by {b} where it grows by {a} on the CPU")


def _sharing(effects: Effects) -> set[str]:
    """Which results are an argument, or share memory with one or with each other."""
    found = set()
    results = [t for t in tensors(effects.result) if is_plain(t)]
    arguments = [t for t in effects.side.arguments if is_plain(t)]
    named = [(f"argument {place}", t) for place, t in enumerate(arguments)]
    for place, result in enumerate(results):
        for name, other in named:
            if result is other:
                found.add(f"result {place} is {name}")
            elif result.untyped_storage()._cdata == other.untyped_storage()._cdata:
                found.add(f"result {place} shares memory with {name}")
        named.append((f"result {place}", result))
    return found


def _values(kind: str, place: int, want: torch.Tensor, got: torch.Tensor, accepts: Accepts) -> Iterator[Problem]:
    rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
    mine, theirs = want.detach(), got.detach().cpu()
    if is_plain(mine) and is_plain(theirs):
        mine, theirs = mine.resolve_conj().resolve_neg(), theirs.resolve_conj().resolve_neg()
    try:
        torch.testing.assert_close(theirs, mine, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        if not accepts(kind, place, mine, theirs):
            yield Problem("fail", f"{kind} {place}: {' '.join(str(error).split())}")


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether each place of its memory, from the first to the last, belongs to one element."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return tensor.numel() == 0
        expected *= size
    return True


def significant_strides(tensor: torch.Tensor) -> list[int]:
    """Strides of the dims that have more than one place: those of the others mean nothing."""
    if tensor.numel() == 0:
        return []
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Not every dtype can be compared."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def _same_number(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float | complex):
        return a == b or (a != a and b != b) or abs(a - b) <= _NUMBER_TOLERANCE * max(abs(a), 1e-3)
    return a == b


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, torch.Size) else str(value)


def _presence(tensor: torch.Tensor | None) -> str:
    return "absent" if tensor is None else "present"
