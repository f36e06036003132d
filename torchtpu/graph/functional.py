"""From an in-place or ``out=`` overload to the functional overload that computes the same new values.

Only functional overloads have rules, so this is how every mutating operator finds its lowering. The answer is read
from the schemas, never from a table of names: two overloads correspond when their arguments have the same names and
types once the ``out`` arguments are left out, and when the functional one returns the new value of everything that
the other one writes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import torch

# An out= overload of a factory takes these from its output instead of from arguments: torch.arange(3, out=x).
_FACTORY_ARGUMENTS = frozenset({"dtype", "layout", "device", "pin_memory"})
_INPLACE_DUNDER = re.compile(r"^__i(\w+)__$")


@functools.cache
def functional_overload(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The functional overload of a mutating one, or None if there is none (or ``op`` mutates nothing).

    The returned overload takes the arguments of ``op`` in the same order, less its ``out`` arguments. Defaults may
    differ, so fill them in from the schema of ``op``. It returns first what ``op`` returns that is new (or writes
    into ``out``), then the new values of the other written arguments in order.

    Metadata operators are answered too, ``transpose_`` by ``transpose.int``: the result is then a view of the argument.
    """
    if not op._schema.is_mutable:
        return None
    results, inputs = _result_types(op), _input_arguments(op)
    factory = None
    for candidate in _candidates(op):
        if candidate._schema.is_mutable or [str(r.type) for r in candidate._schema.returns] != results:
            continue
        given = _input_arguments(candidate)
        if given == inputs:
            return candidate
        if factory is None and _without_factory(given) == _without_factory(inputs):
            factory = candidate
    return factory


def written_arguments(op: torch._ops.OpOverload) -> tuple[str, ...]:
    """Names of the arguments that ``op`` writes, in the order in which its functional form returns their new values."""
    arguments = [a for a in op._schema.arguments if a.is_write]
    return tuple(a.name for a in sorted(arguments, key=lambda a: not a.is_out))


def _candidates(op: torch._ops.OpOverload) -> Iterator[torch._ops.OpOverload]:
    """Overloads whose operator name allows them to be the functional form of ``op``."""
    namespace, _, name = op._schema.name.partition("::")
    dunder = _INPLACE_DUNDER.match(name)
    base = f"__{dunder[1]}__" if dunder else name.removesuffix("_")
    for packet_name in dict.fromkeys((base, f"{base}_functional", name)):
        packet = getattr(getattr(torch.ops, namespace), packet_name, None)
        if packet is not None:
            yield from (getattr(packet, overload) for overload in packet.overloads())


def _input_arguments(op: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


def _without_factory(arguments: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [a for a in arguments if a[0] not in _FACTORY_ARGUMENTS]


def _result_types(op: torch._ops.OpOverload) -> list[str]:
    fresh = [str(r.type) for r in op._schema.returns if r.alias_info is None or not r.alias_info.is_write]
    written = {a.name: str(a.type) for a in op._schema.arguments if a.is_write}
    return fresh + [written[name] for name in written_arguments(op)]
