"""Running a program on one device and noting everything that its author could see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.fuzz import prelude
from tests.fuzz.program import Program

_SKIPPED = frozenset({"device", *prelude.__all__})


@dataclass
class Seen:
    """What one line did: the exception, and what is known of every live tensor without reading it."""

    error: Exception | None
    facts: dict[str, dict[str, Any]]


@dataclass
class Trace:
    """What a program did. ``values`` holds the live tensors and their gradients at the end, on the CPU."""

    seen: list[Seen] = field(default_factory=list)
    values: dict[str, torch.Tensor | Exception] = field(default_factory=dict)

    @property
    def raising(self) -> frozenset[int]:
        """The lines that failed."""
        return frozenset(place for place, seen in enumerate(self.seen) if seen.error is not None)


class World:
    """The tensors of a program on one device."""

    def __init__(self, device: str) -> None:
        self.names: dict[str, Any] = {**{name: getattr(prelude, name) for name in prelude.__all__}, "device": device}

    def run(self, code: Any) -> Exception | None:
        """One line; whatever it raises is part of what it does."""
        try:
            exec(code, self.names)
        except Exception as error:
            return error.with_traceback(None)
        return None

    def tensors(self) -> dict[str, torch.Tensor]:
        """The live tensors by name."""
        return {name: t for name, t in self.names.items() if isinstance(t, torch.Tensor) and name not in _SKIPPED}

    def everything(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The live tensors and their gradients."""
        for name, t in self.tensors().items():
            yield name, t
            grad = gradient(t)
            if grad is not None:
                yield f"{name}.grad", grad

    def facts(self) -> dict[str, dict[str, Any]]:
        """What is known of every tensor without reading it. ``memory`` is the name of the first tensor in the same memory."""
        owners: dict[int, str] = {}
        objects: dict[int, str] = {}
        return {name: _facts(t) | {
            "memory": owners.setdefault(t.untyped_storage()._cdata, name), "object": objects.setdefault(id(t), name),
        } for name, t in self.everything()}

    def values(self) -> dict[str, torch.Tensor | Exception]:
        """All values, on the CPU, or why they cannot be read."""
        return {name: _value(t) for name, t in self.everything()}


def gradient(t: torch.Tensor) -> torch.Tensor | None:
    """The gradient of a tensor that may have one."""
    return t.grad if _is_leaf(t) is True or t.retains_grad else None


def _is_leaf(t: torch.Tensor) -> bool | type[Exception]:
    """One of several views whose base was written raises even here."""
    try:
        return t.is_leaf
    except RuntimeError as error:
        return type(error)


def _value(t: torch.Tensor) -> torch.Tensor | Exception:
    try:
        return t.detach().cpu().resolve_conj().resolve_neg().clone()
    except Exception as error:
        return error.with_traceback(None)


def _facts(t: torch.Tensor) -> dict[str, Any]:
    return {
        "type": type(t), "dtype": t.dtype, "shape": tuple(t.shape), "stride": t.stride(), "offset": t.storage_offset(),
        "version": t._version, "requires_grad": t.requires_grad, "is_leaf": _is_leaf(t), "is_view": t._is_view(),
        "is_conj": t.is_conj(), "is_neg": t.is_neg(), "bytes": t.untyped_storage().nbytes(),
    }


def run(program: Program, device: str) -> Trace:
    """Run all lines, whatever they raise."""
    world, trace = World(device), Trace()
    for code in program.code():
        error = world.run(code)
        trace.seen.append(Seen(error, world.facts()))
    trace.values = world.values()
    return trace
