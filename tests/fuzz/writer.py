"""Writing random programs: hypothesis chooses, and the CPU runs each line at once, so that what comes next knows what there is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import torch

from tests.fuzz import templates
from tests.fuzz.memory import overlaps, share_in_part
from tests.fuzz.observe import World, gradient
from tests.fuzz.program import Program

SIZES = ((4,), (2, 3), (2, 2), (3, 2, 2), (2, 3), (2, 2), (4,), (1, 3), (), (0, 3))
DTYPES = tuple(f"torch.{name}" for name in (
    "float32", "int64", "bool", "float64", "bfloat16", "int32", "uint8", "complex64", "float16", "int8"))
NUMBERS = ("1", "2", "-1", "0", "0.5", "2.0", "True", "3")
KEYS = (
    "0", "1:", "::2", "..., 0", ":, 1:", "-1", "None", ":-1", "..., ::2", "0, 0", "[0, -1]", "1:, 0", "...", ":0", "True",
    "[[0], [-1]]",
)
KINDS = {  # and their shares
    "VIEWS": 5, "VALUES": 5, "WRITES": 5, "UNIFORM_WRITES": 1, "AUTOGRAD": 5, "HOST": 1, "FACTORIES": 1, "DISCRETE": 2,
    "INEXACT": 6,
}
LARGEST = {torch.bfloat16: 64, torch.float16: 256}
_STATEMENTS = ("WRITES", "UNIFORM_WRITES", "AUTOGRAD", "HOST")
_PLACES = re.compile(r"{(\w+)}")


class Unfit(Exception):
    """There is no tensor for a place of a template."""


class Writer:
    """One program in the making."""

    def __init__(self, draw: Callable[..., Any], exact: bool) -> None:
        self.draw, self.exact = draw, exact
        self.world = World("cpu")
        self.lines: list[str] = []
        self.num_names = 0
        self.places: dict[str, str] = {}

    def step(self, kind: str) -> bool:
        """Add a line, if it fits; false when the program has to end."""
        template = self.draw(st.sampled_from(getattr(templates, kind)))
        try:
            line = self._filled(template)
        except Unfit:
            return True
        if kind not in _STATEMENTS:
            line = f"{self._new()} = {line}"
        if not self._is_defined(kind, line):
            return True
        self.lines.append(line)
        error = self.world.run(compile(line, line, "exec"))
        if isinstance(error, NotImplementedError) or "not implemented for" in str(error):
            self.lines.pop()  # the CPU lacks it: nothing to compare with
            return False
        return self._is_tame()

    def _filled(self, template: str) -> str:
        self.places = {}
        for place in _PLACES.findall(template):
            if place not in self.places:
                self.places[place] = self._new() if place == "new" else str(self._place(place))
        return template.format_map(self.places)

    def _new(self) -> str:
        self.num_names += 1
        return f"t{self.num_names - 1}"

    def _place(self, place: str) -> Any:
        choice = {"k": NUMBERS, "size": SIZES, "dtype": DTYPES, "first": range(5), "key": KEYS}.get(place)
        if choice is not None:
            return self.draw(st.sampled_from(choice))
        if place in _FITS:
            return self._tensor(place)
        if place == "shape":
            return self.draw(st.sampled_from(_shapes(self._subject.shape)))
        if place == "i":
            shape, dim = self._subject.shape if self._chosen else (2,), int(self.places.get("d", 0))
            return self.draw(st.integers(0, max(shape[dim] - 1, 0))) if -len(shape) <= dim < len(shape) else 0
        ndim = max(self._subject.dim(), 1)
        wrong = [ndim] if self._subject.numel() else []  # of nothing, the CPU does not always look at the dimension
        return self.draw(st.sampled_from([*range(ndim - 1, -ndim - 1, -1)] * 3 + wrong))

    def _tensor(self, place: str) -> str:
        found = [name for name, t in self.world.tensors().items() if _FITS[place](t, self._subject if self._chosen else t)]
        if not found:
            raise Unfit(place)
        return self.draw(st.sampled_from(found[::-1]))

    @property
    def _chosen(self) -> list[torch.Tensor]:
        return [self.world.names[name] for place, name in self.places.items() if place in _FITS]

    @property
    def _subject(self) -> torch.Tensor:
        return self._chosen[0]

    def _is_defined(self, kind: str, line: str) -> bool:
        """Whether the line's outcome depends on neither the order of elements nor a last digit."""
        tensors = self._chosen
        if "out=" in line and len({t.untyped_storage()._cdata for t in tensors}) < len(tensors):
            return False
        if kind == "DISCRETE" and not self.exact:
            return not any(t.is_floating_point() or t.is_complex() for t in tensors)
        if kind in ("WRITES", "AUTOGRAD", "HOST") and tensors:
            return not any(overlaps(t) for t in tensors) and not any(
                share_in_part(a, b) for place, a in enumerate(tensors) for b in tensors[place + 1:])
        return True

    def _is_tame(self) -> bool:
        """Whether all numbers are finite and so small that sums and products of them are exact."""
        tensors = self.world.tensors().values()
        everything = [*tensors, *(g for g in map(gradient, tensors) if g is not None)]
        return all(t.numel() < 200 and _largest(t.detach()) <= LARGEST.get(t.dtype, 2000) for t in everything)


def _largest(t: torch.Tensor) -> float:
    if not (t.is_floating_point() or t.is_complex()) or t.numel() == 0:
        return 0.0
    return float(t.abs().max().nan_to_num(math.inf))


def _shapes(shape: torch.Size) -> list[tuple[int, ...]]:
    sizes = tuple(shape)
    return [(-1,), sizes[::-1], (*sizes, 1), (1, *sizes), (2, -1), (-1, *sizes[2:])]


def _broadcasts(t: torch.Tensor, to: torch.Tensor) -> bool:
    return t.dim() <= to.dim() and all(n in (1, m) for n, m in zip(reversed(t.shape), reversed(to.shape), strict=False))


_FITS: dict[str, Callable[[torch.Tensor, torch.Tensor], bool]] = {
    "x": lambda t, first: True,
    "y": _broadcasts,
    "z": lambda t, first: t.shape == first.shape,
    "f": lambda t, first: t.is_floating_point(),
    "r": lambda t, first: t.requires_grad,
    "l": lambda t, first: gradient(t) is not None,
    "g": lambda t, first: t.is_floating_point() and _broadcasts(t, first),
    "n": lambda t, first: not t.is_floating_point() and not t.is_complex() and _broadcasts(t, first),
    "c": lambda t, first: t.is_complex(),
}


@st.composite
def programs(draw: Callable[..., Any], max_lines: int = 16) -> Program:
    """Programs of at most so many lines after the tensors that they begin with."""
    exact = draw(st.sampled_from((False, True)))
    writer = Writer(draw, exact)
    for _ in range(draw(st.integers(2, 4))):
        writer.step("FACTORIES")
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight) if kind != "INEXACT" or not exact]
    for _ in range(draw(st.integers(max_lines // 2, max_lines))):
        if not writer.step(draw(st.sampled_from(kinds))):
            break
    return Program(tuple(writer.lines), exact)
