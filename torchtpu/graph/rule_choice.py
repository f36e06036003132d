"""How an operator is computed: its own rule, PyTorch's decomposition, or, if there is neither, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchtpu.graph.overloads import key_of
from torchtpu.rules import find, find_dynamic

# Of operators that are many: how many times a call, of which these are the arguments, draws random numbers.
NUM_DRAWS: dict[str, Callable[[list[Any]], int]] = {}


@dataclass(frozen=True)
class Choice:
    """``kind``: rule, decomposition, dynamic or fallback. ``num_draws``: of the generator, that one call consumes."""

    kind: str
    function: Callable[..., Any]
    num_draws: int


def choose(functional: torch._ops.OpOverload, call: Any) -> Choice:
    """How ``functional`` is computed for the arguments of ``call`` (None: their result is not inferable)."""
    from torchtpu.graph import decompose

    key = key_of(functional)
    if key in NUM_DRAWS and call is not None:
        num_draws = NUM_DRAWS[key](call.arguments)
    else:
        num_draws = int(_is_random(functional, call))
    rule = find_dynamic(key) or find(key) if call is None else find(key)
    if rule is not None:
        return Choice("dynamic" if rule.dynamic else "rule", rule.function, num_draws)
    if call is not None and decompose.exists(functional):
        function = decompose.build(functional, call)
        if function is not None:
            return Choice("decomposition", function, num_draws)
    return Choice("fallback", _unreachable, 0)


def _unreachable(*_: Any, **__: Any) -> Any:
    raise AssertionError("an operator that runs on the CPU was traced")


def _is_random(op: torch._ops.OpOverload, call: Any) -> bool:
    given = {} if call is None else {a.name: v for a, v in zip(call.op._schema.arguments, call.arguments, strict=True)}
    return draws_numbers(op, given)


def draws_numbers(op: torch._ops.OpOverload, arguments: Mapping[str, Any]) -> bool:
    """Whether a call of ``op`` with these arguments, by name, draws random numbers."""
    share = arguments.get("dropout_p", arguments.get("dropout", 1))
    return torch.Tag.nondeterministic_seeded in op.tags and bool(share != 0)
