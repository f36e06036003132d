"""The functional form of every mutating operator: named examples, then all of aten against a golden list."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchtpu.graph.functional import functional_overload, written_arguments

CPU_KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")

EXAMPLES = {
    "add_.Tensor": "add.Tensor",
    "add.out": "add.Tensor",
    "normal_": "normal_functional",
    "uniform_": "uniform",
    "random_": "random",
    "random_.from": "random.from",
    "bernoulli_.float": "bernoulli.p",
    "bernoulli_.Tensor": "bernoulli.Tensor",
    "fill_.Scalar": "fill.Scalar",
    "zero_": "zero",
    "zero.out": "zero",
    "copy_": "copy",
    "_foreach_add_.List": "_foreach_add.List",
    "_fused_adamw_": "_fused_adamw",
    "_fused_adamw_.tensor_lr": "_fused_adamw.tensor_lr",
    "_amp_foreach_non_finite_check_and_unscale_": "_amp_foreach_non_finite_check_and_unscale",
    "_index_put_impl_": "_index_put_impl",
    "index_put_": "index_put",
    "arange.out": "arange",
    "arange.start_out": "arange.start_step",
    "full.out": "full",
    "_to_copy.out": "_to_copy",
    "max.dim_max": "max.dim",
    "sort.values_stable": "sort.stable",
    "topk.values": "topk",
    "__iand__.Tensor": "__and__.Tensor",
    "_native_batch_norm_legit": "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit.out": "_native_batch_norm_legit_functional",
    "rrelu_with_noise_": "rrelu_with_noise_functional",
    "transpose_": "transpose.int",
}


def _overload(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _mutating_with_cpu_kernel() -> list[torch._ops.OpOverload]:
    names = sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    with_kernel = [
        _overload(n.removeprefix("aten::"))
        for n in names
        if any(torch._C._dispatch_has_kernel_for_dispatch_key(n, key) for key in CPU_KEYS)
    ]
    return [op for op in with_kernel if op._schema.is_mutable]


@pytest.mark.parametrize(("mutating", "functional"), EXAMPLES.items())
def test_finds_the_functional_overload(mutating: str, functional: str) -> None:
    assert functional_overload(_overload(mutating)) is _overload(functional)


def test_a_functional_overload_has_no_other_form() -> None:
    assert functional_overload(torch.ops.aten.add.Tensor) is None


def test_written_arguments_come_in_the_order_of_the_functional_results() -> None:
    batch_norm = torch.ops.aten._native_batch_norm_legit
    assert written_arguments(batch_norm.default) == ("running_mean", "running_var")
    assert written_arguments(batch_norm.out) == ("out", "save_mean", "save_invstd", "running_mean", "running_var")


def test_all_of_aten_but_the_golden_list_has_a_functional_form(golden: Callable[[str, str], None]) -> None:
    operators = _mutating_with_cpu_kernel()
    missing = [str(op).removesuffix(".default") for op in operators if functional_overload(op) is None]
    assert len(operators) > 1000
    golden("ops_without_functional_form", "".join(f"{name}\n" for name in missing))


def test_results_that_alias_arguments_come_in_argument_order() -> None:
    """What makes the order of :func:`written_arguments` right: no schema of aten returns its outputs shuffled."""
    for op in _mutating_with_cpu_kernel():
        written = {str(a.alias_info.before_set): a.name for a in op._schema.arguments if a.is_write}
        aliases = [r.alias_info for r in op._schema.returns if r.alias_info and r.alias_info.is_write]
        returned = [written[str(alias.before_set)] for alias in aliases]
        assert returned == [n for n in written_arguments(op) if n in returned], op
