"""Limits on compiles: programs that would need one more are refused, and wait as they were."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchtpu.errors import CompileLimitError, CompileLimitScopeError, InvalidFlagError

if TYPE_CHECKING:
    from torchtpu.graph.difference import Difference

_active: list[limit_compiles] = []


class limit_compiles(ContextDecorator):  # used like torch.no_grad, hence its name
    """A context manager, or a decorator, in which at most ``max_compiles`` programs may be compiled.

    It holds for the process, whichever thread compiles: what one thread recorded may be compiled by another (a backward pass, or
    whoever needs the value first). Loading a program from disk is no compile. Work counts when its program is compiled, not when it
    is recorded: read a result, or call ``torch.tpu.synchronize()``, before the end of the block, to have all of it counted.
    Limits nest, and each of them counts.

    Raises:
        InvalidFlagError: ``max_compiles`` is negative, or no integer.
        CompileLimitScopeError: decorates a generator or a coroutine function, whose body runs after the call has returned.
        CompileLimitError: inside, on the line whose program would be one more, with its difference from the nearest known program.
            Every tensor is as it was, and the program runs when it is needed outside of the block.
    """

    def __init__(self, max_compiles: int) -> None:
        if not isinstance(max_compiles, int) or max_compiles < 0:
            raise InvalidFlagError(
                name="max_compiles", value=max_compiles, expected="an integer from 0 on", fix=InvalidFlagError.ARGUMENT)
        self.max_compiles = max_compiles
        self.num_compiles = 0

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function under a limit of its own in each call."""
        if any(is_kind(func) for is_kind in (
                inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)):
            raise CompileLimitScopeError(function=func.__qualname__)
        return super().__call__(func)

    def _recreate_cm(self) -> limit_compiles:
        return limit_compiles(self.max_compiles)

    def __enter__(self) -> limit_compiles:
        """Count from here."""
        self.num_compiles = 0
        _active.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Limit no more."""
        _active.remove(self)


def assert_no_compiles() -> limit_compiles:
    """``limit_compiles(0)``: for code that was warmed up, in tests and in serving."""
    return limit_compiles(0)


def admit(num_nodes: int, line: str, reason: str, difference: Difference) -> None:
    """Count a compile that is about to begin.

    Raises:
        CompileLimitError: some limit leaves none.
    """
    for limit in reversed(_active):
        if limit.num_compiles >= limit.max_compiles:
            raise CompileLimitError(
                limit=limit.max_compiles, num_nodes=num_nodes, line=line, reason=reason, difference=difference.text)
    for limit in _active:
        limit.num_compiles += 1
