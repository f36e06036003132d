"""Where an operator is lowered: its rule, its decomposition or the CPU fallback, with file and line.

    python -m torchtpu.inspect.where aten::addmm
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchtpu.graph.cpu_only import CPU_ONLY
from torchtpu.graph.functional import functional_overload
from torchtpu.graph.overloads import key_of, overload
from torchtpu.rules import registry

_ROOT = Path(__file__).resolve().parents[2]


class UnknownOperatorError(Exception):
    """No operator of that name is registered with PyTorch; the message holds close matches."""


def load_all_rules() -> None:
    """Import every module of ``torchtpu.rules``, so that the registry is complete."""
    package = importlib.import_module("torchtpu.rules")
    for module in pkgutil.walk_packages(package.__path__, "torchtpu.rules."):
        importlib.import_module(module.name)


def parse(name: str) -> list[torch._ops.OpOverload]:
    """The overloads that a name means: one for ``aten::add.Tensor``, all for ``add``, which has no default one.

    ``addmm``, ``aten.addmm.default`` and ``torch.ops.aten.addmm`` are understood too.

    Raises:
        UnknownOperatorError: nothing of that name exists.
    """
    text = name.strip().removeprefix("torch.ops.").removeprefix("torch.")
    if "::" not in text:
        text = text.replace(".", "::", 1) if text.startswith("aten.") else f"aten::{text}"
    known = set(torch._C._dispatch_get_all_op_names())
    namespace, _, rest = text.partition("::")
    packet, _, overload_name = rest.partition(".")
    base = f"{namespace}::{packet}"
    if overload_name in ("", "default"):
        found = [base] if base in known else sorted(n for n in known if not overload_name and n.startswith(base + "."))
    else:
        found = [text] if text in known else []
    if not found:
        near = difflib.get_close_matches(text, known, n=5, cutoff=0.7) or difflib.get_close_matches(base, known, n=5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UnknownOperatorError(f"{name}: PyTorch {torch.__version__} has no operator of this name.{hint}")
    return [overload(n) for n in found]


def lines(op: torch._ops.OpOverload) -> list[str]:
    """What there is to say about one overload, schema first."""
    text = [str(op._schema)]
    if op._schema.is_mutable:
        functional = functional_overload(op)
        if functional is None:
            return [*text, "  no functional form: runs on the CPU (fallback)"]
        text.append(f"  derived from {key_of(functional)}")
        op = functional
    return [*text, *(f"  {line}" for line in _lowering(op))]


def main(arguments: list[str] | None = None) -> int:
    """Print where each named operator is lowered; 1 when one does not exist."""
    parser = argparse.ArgumentParser(prog="torchtpu where", description="Where operators are lowered: file and line.")
    parser.add_argument("op", nargs="+", help="such as aten::addmm, aten::add.Tensor or add_")
    names = parser.parse_args(arguments).op
    load_all_rules()
    try:
        overloads = [op for name in names for op in parse(name)]
    except UnknownOperatorError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(line for op in overloads for line in lines(op)))
    return 0


def _lowering(op: torch._ops.OpOverload) -> list[str]:
    key = key_of(op)
    if rule := registry.find(key):
        path, _, line = rule.where.rpartition(":")
        kind = "dynamic rule" if rule.dynamic else "rule"
        name = getattr(rule.function, "__name__", "")
        return [f"{kind:<14}{_short(path)}:{line}  {name}".rstrip(), *_table_rows(key)]
    if any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns):
        return ["view          metadata only: the recorder computes it, nothing runs"]
    if torch._C._dispatch_has_kernel_for_dispatch_key(key, "CompositeImplicitAutograd"):
        return ["composite     PyTorch splits it into other operators before it reaches the device"]
    from torch._decomp import core_aten_decompositions

    table = core_aten_decompositions()
    if op in table:  # its .get() does not find what its [] does
        return [f"decomposition {_source(table[op])}"]
    return [f"CPU fallback  {CPU_ONLY.get(key, 'no rule and no decomposition')}"]


def _table_rows(key: str) -> list[str]:
    """Where the operator's test row is; nothing outside of a checkout."""
    for path in sorted((_ROOT / "tests" / "ops" / "table").glob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if f'"{key}"' in line:
                return [f"{'test row':<14}{_short(str(path))}:{number}"]
    return []


def _source(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{_short(code.co_filename)}:{code.co_firstlineno}  {name}" if code else name


def _short(path: str) -> str:
    """The path below the checkout or below site-packages."""
    for root in (Path(torch.__file__).resolve().parents[1], _ROOT):
        if Path(path).is_relative_to(root):
            return str(Path(path).relative_to(root))
    return path


if __name__ == "__main__":
    sys.exit(main())
