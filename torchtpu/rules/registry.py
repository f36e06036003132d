"""The one table from an aten operator to the JAX function that computes it.

Rules are keyed by the *functional* overload, ``"aten::add.Tensor"`` (a default overload has no suffix). In-place and ``out=``
forms are derived from them by the recorder and never written here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_KEY = re.compile(r"^[a-z_0-9]+::[A-Za-z_0-9]+(\.[A-Za-z_0-9]+)?$")


@dataclass(frozen=True)
class Rule:
    """One registered lowering.

    ``dynamic`` rules have outputs whose shapes depend on values: they get concrete arrays and may read them.
    """

    key: str
    function: Callable[..., Any]
    dynamic: bool
    where: str


RULES: dict[str, Rule] = {}
# Of operators whose result shape depends on values for some arguments only: a mask among the indices.
DYNAMIC_CASES: dict[str, Rule] = {}
# Operators of compiled graphs that take functions: control flow, attention with a user's scores. Keyed by name alone.
HIGHER_ORDER: dict[str, Rule] = {}


def _register(
    key: str, function: Callable[..., Any], dynamic: bool, table: dict[str, Rule] = RULES, where: str | None = None
) -> None:
    if not _KEY.match(key):
        raise ValueError(f"{key!r} is not of the form namespace::operator[.overload]")
    code = getattr(function, "__code__", None)
    where = where or (f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function))
    if key in table:
        raise ValueError(f"{key} is registered twice: at {table[key].where} and at {where}")
    table[key] = Rule(key, function, dynamic, where)


def lower(*keys: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the rule of each key.

    Raises:
        ValueError: a malformed key, or one that already has a rule (both places are named).
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            _register(key, function, dynamic=False)
        return function

    return decorate


def lower_dynamic(*keys: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule whose output shapes depend on values; it is called with concrete arrays, outside of any trace."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            _register(key, function, dynamic=True)
        return function

    return decorate


def lower_dynamic_case(*keys: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a dynamic rule beside an operator's ordinary one, for the calls whose output shape depends on values."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            _register(key, function, dynamic=True, table=DYNAMIC_CASES)
        return function

    return decorate


def lower_higher_order(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the lowering of a higher-order operator: it gets ``Subgraph`` functions where PyTorch's has graphs."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _register(f"higher_order::{name}", function, dynamic=False, table=HIGHER_ORDER)
        return function

    return decorate


def lower_table(table: Mapping[str, Any], make: Callable[[Any], Callable[..., Any]], keys: Iterable[str] = ()) -> None:
    """Register a family of rules that differ only in the function they call: ``make(table[key])`` is the rule of ``key``.

    The place of such a rule is that of the table: ``make`` may stand in another file.
    """
    caller = sys._getframe(1)
    for key, value in table.items():
        _register(key, make(value), dynamic=False, where=f"{caller.f_code.co_filename}:{caller.f_lineno}")


def find(key: str) -> Rule | None:
    """The rule of a functional overload, or None."""
    return RULES.get(key)


def find_higher_order(name: str) -> Rule | None:
    """The lowering of a higher-order operator, or None."""
    return HIGHER_ORDER.get(f"higher_order::{name}")


def find_dynamic(key: str) -> Rule | None:
    """The rule for calls of a functional overload whose output shape depends on values, or None."""
    rule = DYNAMIC_CASES.get(key) or RULES.get(key)
    return rule if rule is not None and rule.dynamic else None
