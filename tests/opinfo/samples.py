"""The samples of each database, as cases."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.opinfo.case import Case
from tests.opinfo.options import Checks

_FRESH = re.compile(r"(^|\.)(new_)?empty(_like|_strided|_permuted)?$|^resize_")
_HOST_REST = ("tensor_split",)  # PyTorch reads the places to split at on the CPU
# They promise no order among equal values; where they take the dim, if they return places along it.
_DIM_PLACE = {"sort": 1, "argsort": 1, "topk": 2, "kthvalue": 2, "mode": 1, "msort": None}
_OUT_FORMS = ("same", "strided", "empty")
_STEPS = 3  # of an optimizer


def cases(suite: str, entry: Any, dtype: torch.dtype, checks: Checks) -> Iterator[Case]:
    """All calls of one task."""
    return {"ops": _ops, "foreach": _ops, "modules": _modules, "optim": _optim}[suite](entry, dtype, checks)


def error_cases(suite: str, entry: Any) -> Iterator[Case]:
    """Calls with bad arguments."""
    return {"ops": _ops_errors, "foreach": _ops_errors, "modules": _module_errors, "optim": _optim_errors}[suite](entry)


def _limited(samples: Any, checks: Checks) -> Iterator[tuple[int, Any]]:
    return itertools.islice(enumerate(samples, 1), checks.max_samples or None)


def _second_order(dtype: torch.dtype, checks: Checks) -> bool:
    return checks.gradgrad and dtype in (torch.float64, torch.complex128)


def _ops(entry: Any, dtype: torch.dtype, checks: Checks) -> Iterator[Case]:
    differentiable = checks.grad and entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    for number, sample in _limited(entry.sample_inputs("cpu", dtype, requires_grad=differentiable), checks):
        args = (sample.input, *sample.args)
        ties = _has_ties(entry, sample)
        gradients = differentiable and not ties
        make = functools.partial(
            Case, args=args, kwargs=sample.kwargs,
            process=_values_at(sample, _DIM_PLACE[entry.name]) if ties else sample.output_process_fn_grad,
            second_order=_second_order(dtype, checks) and entry.supports_gradgrad, fresh=bool(_FRESH.search(entry.name)),
            names_no_device=_names_no_device((args, sample.kwargs)), host_rest=entry.name in _HOST_REST)
        if "fn" in checks.variants:
            yield make(f"fn #{number}", "fn", entry.get_op(), gradients=gradients)
        if "inplace" in checks.variants and entry.get_inplace() and not sample.broadcasts_input:
            yield make(
                f"inplace #{number}", "inplace", entry.get_inplace(), gradients=gradients and entry.supports_inplace_autograd)
        if "out" in checks.variants and entry.supports_out and not entry.name.startswith("_foreach"):
            form = _OUT_FORMS[number % len(_OUT_FORMS)]
            yield make(f"out ({form}) #{number}", "out", entry.get_op(), out=form)


def _has_ties(entry: Any, sample: Any) -> bool:
    """Whether there are equal values among which the operator promises no order."""
    unordered = entry.name in _DIM_PLACE and not sample.kwargs.get("stable")
    return unordered and sample.input.unique().numel() < sample.input.numel()


def _values_at(sample: Any, place: int | None) -> Callable[[Any], Any]:
    """Of results that name places of the input, the values there."""
    if place is None:
        return sample.output_process_fn_grad
    dim = sample.kwargs.get("dim", (sample.input, *sample.args, *[-1] * place)[place])

    def process(result: Any) -> Any:
        *kept, indices = (result,) if isinstance(result, torch.Tensor) else result
        indices = indices.cpu()
        if indices.dim() < sample.input.dim():
            indices = indices.unsqueeze(dim)
        return [*kept, sample.input.detach().gather(dim, indices)]

    return process


def _names_no_device(tree: Any) -> bool:
    return not any(isinstance(leaf, torch.Tensor | torch.device) or leaf == "cpu" for leaf in tree_leaves(tree))


def _ops_errors(entry: Any) -> Iterator[Case]:
    if entry.error_inputs_func is None:
        return
    for number, error in enumerate(entry.error_inputs("cpu"), 1):
        sample = error.sample_input
        args = (sample.input, *sample.args)
        yield Case(
            f"error #{number}", "error", entry.get_op(), args, sample.kwargs, host_rest=entry.name in _HOST_REST,
            names_no_device=_names_no_device((args, sample.kwargs)))


def _modules(entry: Any, dtype: torch.dtype, checks: Checks) -> Iterator[Case]:
    for training in (True, False) if entry.train_and_eval_differ else (True,):
        inputs = entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=checks.grad, training=training)
        for number, sample in _limited(inputs, checks):
            if sample.forward_input is None:
                continue
            torch.manual_seed(number)
            made = sample.constructor_input
            module = entry.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            label = f"{'training' if training else 'evaluation'} #{number} {sample.desc}".strip()
            yield Case(
                label, "fn", torch.nn.Module.__call__, (module, *sample.forward_input.args), sample.forward_input.kwargs,
                gradients=checks.grad, second_order=_second_order(dtype, checks) and entry.supports_gradgrad)


def _module_errors(entry: Any) -> Iterator[Case]:
    from torch.testing._internal.common_modules import ModuleErrorEnum

    if entry.module_error_inputs_func is None:
        return
    errors = entry.module_error_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    for number, error in enumerate(errors, 1):
        made, given = error.module_error_input.constructor_input, error.module_error_input.forward_input
        forward = error.error_on == ModuleErrorEnum.FORWARD_ERROR

        def build(*args: Any, forward: bool = forward, made: Any = made, **kwargs: Any) -> Any:
            module = entry.module_cls(*made.args, **made.kwargs)
            return module(*args, **kwargs) if forward else None

        args, kwargs = (given.args, given.kwargs) if given else ((), {})
        yield Case(f"error #{number}", "error", build, args, kwargs, names_no_device=True)


def _optim(entry: Any, dtype: torch.dtype, checks: Checks) -> Iterator[Case]:
    """Three steps of a small quadratic, by each implementation: left to itself, PyTorch chooses another one for each device."""
    shapes = ((4, 3), (5, 2)) if entry.name == "Muon" else ((4, 3), (5,))
    torch.manual_seed(0)
    params = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    implementations = [{name: True} for name in ("foreach", "fused") if name in entry.supported_impls]
    implementations.append({"foreach": False} if "foreach" in entry.supported_impls else {})
    for number, sample in _limited(entry.optim_inputs_func(device="cpu", dtype=dtype), checks):
        for chosen in implementations:
            label = f"{sample.desc} #{number}"
            yield Case(label, "fn", _optimized(entry.optim_cls), (params, sample.kwargs | chosen), gradients=True)


def _optimized(optimizer_class: Any) -> Callable[..., Any]:
    def run(params: list[torch.Tensor], kwargs: dict[str, Any]) -> Any:
        optimizer = optimizer_class(params, **kwargs)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = torch.stack([(p * p.conj()).real.sum() / number for number, p in enumerate(params, 2)]).sum()
            value.backward()
            return value

        for _ in range(_STEPS):
            optimizer.step(loss)
        states = optimizer.state_dict()["state"].values()
        kept = [v for state in states for v in state.values() if isinstance(v, torch.Tensor) and v.dim()]  # counts stay on the CPU
        return [p.detach() for p in params], kept

    return run


def _optim_errors(entry: Any) -> Iterator[Case]:
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum

    for number, error in enumerate(entry.optim_error_inputs_func("cpu", torch.float32), 1):
        sample = error.optimizer_error_input
        params = [torch.ones(1, 1, requires_grad=True)] if sample.params is None else sample.params
        steps = error.error_on == OptimizerErrorEnum.STEP_ERROR

        def build(params: Any, kwargs: dict[str, Any], steps: bool = steps) -> None:
            optimizer = entry.optim_cls(params, **kwargs)
            if steps:
                optimizer.step()

        yield Case(f"error #{number} {sample.desc}", "error", build, (params, sample.kwargs), gradients=True)
