"""How every operator of ATen is done on the device, for ``docs/coverage.md``.

An operator counts if it returns something new, reaches a device (PyTorch does not replace it by others before autograd), and is
about dense tensors: the CPU has a dense kernel of it, or PyTorch writes it in other operators, or there is a rule. In-place and
``out=`` overloads are derived from functional ones, so they are not counted again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from torchtpu.graph import decompose
from torchtpu.graph.cpu_only import CPU_ONLY
from torchtpu.graph.functional import functional_overload
from torchtpu.graph.overloads import key_of, overload
from torchtpu.rules.registry import find

# How an operator is done, in the order of the counts.
KINDS = {
    "rule": "a JAX function of its own",
    "view": "metadata only, nothing runs",
    "core": "the recorder itself: allocation, reading, comparing",
    "decomposition": "PyTorch's, in operators that have rules",
    "composite": "PyTorch writes it in other operators before the device is asked",
    "CPU only": "falls back, on purpose",
    "gap": "falls back, for want of a rule",
}
# Sparse, nested and quantized tensors, other vendors' kernels, and operators for PyTorch's own tests: not what this device holds.
_NOT_DENSE = re.compile(
    "sparse|nested|jagged|quantize|_qparams|q_|int[48]pack|dyn_quant|fake_quant|coo_|csr|coalesce|dense_dim|"
    "^_?(c?col_|c?row_)?(indices|values)(_copy)?$|"
    "mkldnn|nnpack|cudnn|miopen|mps|_for_cpu|_cpu_fallback|_test_|_foobar|_philox|_overrideable$|_with_same_feature_meta|"
    "_dep_token|_dual_copy|_primal_copy|_fq_helper|_scaled_mm")
# Without their side effect, or without the tensor's storage, there is nothing to compute; the last one chooses among kernels.
_NO_FUNCTION = re.compile(
    "assert|sym_constrain|^(resize|set|_resize_output|_print|_pin_memory|is_pinned|from_file|_fused_sdp_choice)$")


@dataclass(frozen=True)
class Operator:
    """One functional overload. ``where`` is the file of its rule, or why it is done as it is."""

    key: str
    kind: str
    where: str = ""

    @property
    def packet(self) -> str:
        """The name without overload, as a user calls it."""
        return self.key.removeprefix("aten::").partition(".")[0]


def operators() -> list[Operator]:
    """All that count, by name."""
    names = sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    return [Operator(key_of(op), *_kind(op)) for op in map(overload, names) if _counts(op)]


def derived() -> tuple[int, int]:
    """How many in-place and ``out=`` overloads have a functional form, and how many there are."""
    names = (n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    mutable = [op for op in map(overload, names) if op._schema.is_mutable]
    return sum(functional_overload(op) is not None for op in mutable), len(mutable)


def is_computed(key: str) -> bool:
    """Whether anything but the CPU fallback computes an operator."""
    return _kind(overload(key))[0] not in ("CPU only", "gap")


def _counts(op: torch._ops.OpOverload) -> bool:
    key = key_of(op)
    if op._schema.is_mutable or not op._schema.returns:
        return False
    if find(key) is not None:
        return True
    packet = key.removeprefix("aten::").partition(".")[0]
    if _has(key, "CompositeImplicitAutograd") or _NOT_DENSE.search(packet) or _NO_FUNCTION.search(packet):
        return False
    return _has(key, "CPU") or _is_split(key)


def _kind(op: torch._ops.OpOverload) -> tuple[str, str]:
    key = key_of(op)
    if rule := find(key):
        return "rule", Path(rule.where.rpartition(":")[0]).name
    if any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns):
        return "view", ""
    if _is_written_by_hand(key):
        return "core", ""
    if decompose.exists(op):
        return "decomposition", ""
    if _is_split(key):
        return "composite", ""
    if key in CPU_ONLY:
        return "CPU only", CPU_ONLY[key]
    return "gap", ""


def _is_split(key: str) -> bool:
    """PyTorch has a kernel for every device, in other operators, and the recorder is not registered over it."""
    names = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return any(_has(key, name) for name in names) and not _has(key, "PrivateUse1")


def _is_written_by_hand(key: str) -> bool:
    """The recorder's kernel is boxed; those of its own for allocation and metadata are not."""
    dump = torch._C._dispatch_dump(key).splitlines()
    return any(line.startswith("PrivateUse1:") and "unboxed" in line for line in dump)


def _has(key: str, dispatch_key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(key, dispatch_key)


def by_packet(found: list[Operator]) -> Iterator[tuple[str, str, str]]:
    """Operator names, how their overloads are done, and in which files: one line a name."""
    packets: dict[str, list[Operator]] = {}
    for operator in found:
        packets.setdefault(operator.packet, []).append(operator)
    for packet, overloads in packets.items():
        kinds = list(dict.fromkeys(o.kind for o in overloads))
        files = sorted({o.where for o in overloads if o.kind == "rule"})
        yield packet, ", ".join(kinds), ", ".join(files)
