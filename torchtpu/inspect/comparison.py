"""The first operator whose result on the device is not the CPU's."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from torchtpu.graph.overloads import key_of
from torchtpu.inspect.cpu_forms import CPU_FORMS
from torchtpu.inspect.shadow import Errors, Shadows
from torchtpu.runtime.user_code import is_library, user_line

_RTOL = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
_RTOL |= {torch.complex128: 1e-7, torch.complex64: 1e-4, torch.complex32: 5e-3}
_WIDE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64)
_WIDE |= dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128)
_FACTOR = 16  # by which the device may be further than the CPU from the result in float64
# Memory that nobody has written, or that is another's from now on: there is nothing to compare.
_NO_VALUES = re.compile(r"aten::(new_)?empty(_like|_strided|_permuted)?(\.|$)|aten::(set_|resize_|resize_as_)(\.|$)")
_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+)')


@dataclass(frozen=True)
class Input:
    """One tensor that the operator was given: ``"self: float32[64, 784]"``, and how far the two sides were apart before."""

    description: str
    errors: Errors


@dataclass(frozen=True)
class Divergence:
    """The first result beyond the tolerances.

    Attributes:
        op: such as ``"aten::mm"``.
        line: ``file:line`` of the user's code; in a backward pass that of the forward operator, where it is known.
        is_backward: whether it ran in a backward pass.
        number: how many operators had been compared before.
        result: description of the result.
        errors: the largest differences of the two results.
        inputs: the tensors that it was given.
    """

    op: str
    line: str
    is_backward: bool
    number: int
    result: str
    errors: Errors
    inputs: tuple[Input, ...]

    def __str__(self) -> str:
        where = f"the backward pass of {self.line}" if self.is_backward else self.line
        lines = [f"{self.op}, operator {self.number}, in {where}: {self.result} {_told(self.errors)}"]
        return "\n".join(lines + [f"  was given {i.description} {_told(i.errors)}" for i in self.inputs])


@dataclass(frozen=True)
class Comparison:
    """What ``compare`` found.

    Attributes:
        result: what the function returned, on the device.
        divergence: the first operator whose result differs; None if there is none.
        num_compared: operators compared, up to the first divergence.
        num_drawn: random operators among them, whose results were the CPU's on both sides.
        num_inherited: results that differ only because what their operators were given differs, or because large numbers cancel.
        not_compared: operators that the CPU cannot run, and how often they came; their results were the device's on both sides.
    """

    result: Any
    divergence: Divergence | None
    num_compared: int
    num_drawn: int
    num_inherited: int
    not_compared: dict[str, int]

    def __str__(self) -> str:
        drawn = f" ({self.num_drawn} of them random, given the CPU's draws)" if self.num_drawn else ""
        inherited = f"; {self.num_inherited} results differ by no fault of their operators" if self.num_inherited else ""
        agreed = f"no difference in {self.num_compared} operators{drawn}{inherited}"
        first = str(self.divergence) if self.divergence is not None else agreed
        others = ", ".join(f"{op} ({count}x)" for op, count in self.not_compared.items())
        return first + (f"\nnot compared, because the CPU cannot run them: {others}" if others else "")


def compare(
    fn: Callable[..., Any], *args: Any, rtol: float | None = None, atol: float | None = None, seed: int = 0, **kwargs: Any,
) -> Comparison:
    """Run ``fn`` on the device, each of its operators on the CPU as well, and find the first whose results differ.

    Arguments are copied first: CPU tensors move to the device, and modules (``fn`` itself, if it is one) are deep-copied there;
    what ``fn`` closes over is left as it is. The CPU's side goes on from the CPU's own results, as a run there would, except that
    what ``fn`` reads back is the device's. Backward passes and optimizers inside ``fn`` are compared too. Draws differ between
    devices, so random operators give the CPU's draws to both sides. Operators run one by one and are waited for, so this is slow,
    and cannot see what only a fused program does wrong.

    Args:
        rtol: tolerance relative to each element of the CPU's result. By default 1e-7 for float64, 1e-4 for float32, 5e-3 for
            float16, 4e-2 for bfloat16, and 0 for what is not a float.
        atol: added to it. By default ``rtol`` times the largest finite magnitude of the CPU's result. With both defaults, an
            operator is blamed only if its result is also wrong for what it was given, judged by the CPU in float64: an optimizer
            makes steps of the noise in a gradient that should be zero, and no operator is at fault.
        seed: of the CPU's draws.

    Raises:
        Exception: whatever ``fn`` raises on the device, or an operator of it on the CPU (an index out of bounds, for instance).
    """
    copies: dict[int, Any] = {}
    function, moved, named = (tree_map(lambda leaf: _on_device(leaf, copies), each) for each in (fn, args, kwargs))
    mode = _Comparing(rtol, atol)
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.autograd.set_detect_anomaly(True, check_nan=False)  # it notes the forward line of every backward operator
    try:
        with torch.random.fork_rng(devices=[]), mode:
            torch.default_generator.manual_seed(seed)
            result = function(*moved, **named)
    finally:
        torch.autograd.set_detect_anomaly(*anomaly)
    return Comparison(result, mode.divergence, mode.num_compared, mode.num_drawn, mode.num_inherited, dict(mode.not_compared))


def _on_device(leaf: Any, copies: dict[int, Any]) -> Any:
    """A copy on the device; the same copy for the same object."""
    if isinstance(leaf, torch.nn.Module):
        return copies.setdefault(id(leaf), copy.deepcopy(leaf).to("tpu"))
    if isinstance(leaf, torch.Tensor):
        moved = leaf.detach().to("tpu", copy=True).requires_grad_(leaf.requires_grad)
        return copies.setdefault(id(leaf), moved)
    return leaf


def _is_tpu(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.device.type == "tpu"


@dataclass(frozen=True)
class _Call:
    """One operator with its arguments, and the tensors among them by name."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        call = cls(op, args, kwargs)
        for argument, value in zip(op._schema.arguments, [*args, *(kwargs.get(a.name) for a in op._schema.arguments[len(args):])],
                                   strict=True):
            here = [leaf for leaf in tree_leaves(value) if _is_tpu(leaf)]
            call.tensors.extend((argument.name, tensor) for tensor in here)
            if argument.alias_info is not None and argument.alias_info.is_write:
                call.written.extend(here)
        return call

    @property
    def is_view(self) -> bool:
        returns = self.op._schema.returns
        return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)

    @property
    def has_values(self) -> bool:
        return not self.is_view and _NO_VALUES.match(key_of(self.op)) is None

    @property
    def is_random(self) -> bool:
        return torch.Tag.nondeterministic_seeded in self.op.tags and self.op not in CPU_FORMS  # those are for no dropout

    def run(self) -> Any:
        return self.op(*self.args, **self.kwargs)

    def run_on_cpu(self) -> Any:
        return CPU_FORMS.get(self.op, self.op)(*self.args, **self.kwargs)

    def on_cpu(self, fetch: Callable[[torch.Tensor], torch.Tensor]) -> _Call:
        """The same with what ``fetch`` makes of each tensor of the device."""
        def moved(leaf: Any) -> Any:
            if isinstance(leaf, torch.device):
                return torch.device("cpu")
            if isinstance(leaf, torch.Generator):
                return None  # the CPU's default one
            return fetch(leaf) if _is_tpu(leaf) else leaf

        return self._mapped(moved)

    def widened(self) -> _Call:
        """The same in double precision, on copies."""
        def wide(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return leaf.to(_WIDE.get(leaf.dtype, leaf.dtype), copy=True)
            return _WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

        return self._mapped(wide)

    def _mapped(self, function: Callable[[Any], Any]) -> _Call:
        made: dict[int, Any] = {}  # one tensor given twice stays one

        def once(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return function(leaf)
            if id(leaf) not in made:
                made[id(leaf)] = function(leaf)
            return made[id(leaf)]

        args, kwargs = tree_map(once, (self.args, self.kwargs))
        return _Call(self.op, args, kwargs, written=[made[id(tensor)] for tensor in self.written])

    def results(self, returned: Any) -> Iterator[torch.Tensor]:
        """Every tensor that it made or changed."""
        leaves = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        yield from leaves
        yield from (tensor for tensor in self.written if all(tensor is not leaf for leaf in leaves))


class _Comparing(TorchDispatchMode):
    """Sees every operator below autograd, in whatever thread the backward pass runs."""

    def __init__(self, rtol: float | None, atol: float | None) -> None:
        super().__init__()
        self._rtol, self._atol = rtol, atol
        self._shadows = Shadows()
        self.divergence: Divergence | None = None
        self.num_compared = 0
        self.num_drawn = 0
        self.num_inherited = 0
        self.not_compared: Counter[str] = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        call = _Call.of(op, args, kwargs or {})
        if self.divergence is not None or not call.has_values:
            return call.run()
        expected = call.on_cpu(self._shadows.of)
        inputs = [Input(f"{name}: {_shown(tensor)}", self._shadows.errors(tensor)) for name, tensor in call.tensors]
        given = call.on_cpu(torch.Tensor.cpu) if call.written else None  # before it is overwritten
        returned = call.run()
        made = list(call.results(returned))
        if any(map(_is_tpu, made)):
            self._compare(call, expected, given, made, inputs)
        return returned

    def _compare(self, call: _Call, expected: _Call, given: _Call | None, made: list[torch.Tensor], inputs: list[Input]) -> None:
        try:
            wanted = list(expected.results(expected.run_on_cpu()))
        except NotImplementedError:
            self.not_compared[key_of(call.op)] += 1
            for tensor in call.written:
                self._shadows.forget(tensor)
            return
        for place, (tensor, value) in enumerate(zip(made, wanted, strict=call.op not in CPU_FORMS)):
            self._shadows.follow(tensor, value)
            if call.is_random:
                tensor.copy_(value)
            got = tensor.cpu()
            errors, is_close = _errors(got, value, self._rtol, self._atol)
            self._shadows.note(tensor, errors)
            if not is_close and self.divergence is None:
                if not self._is_at_fault(call, given or call.on_cpu(torch.Tensor.cpu), place, got):
                    self.num_inherited += 1
                    continue
                line, is_backward = _line()
                self.divergence = Divergence(
                    key_of(call.op), line, is_backward, self.num_compared, _shown(tensor), errors, tuple(inputs))
        self.num_compared += 1
        self.num_drawn += call.is_random

    def _is_at_fault(self, call: _Call, given: _Call, place: int, got: torch.Tensor) -> bool:
        """Whether it is this operator that is wrong, and not what it was given; with tolerances of the caller's, it is always.

        The judge is the CPU in double precision, given what the device had. Where large numbers cancel, the CPU's own digits are
        wrong as well: that much, and some more, is granted.
        """
        if self._rtol is not None or self._atol is not None or call.is_random or got.dtype not in _WIDE:
            return True
        widened = given.widened()
        try:
            exact = list(widened.results(widened.run_on_cpu()))[place]
        except RuntimeError:  # the operator does not take float64, so there is no better judge than the CPU's result
            return True
        own = list(given.results(given.run_on_cpu()))[place]
        ours, is_close = _errors(got.to(exact.dtype), exact, _RTOL[got.dtype], None)
        return not is_close and ours.absolute > _FACTOR * _errors(own.to(exact.dtype), exact, 0.0, None)[0].absolute


def _errors(got: torch.Tensor, wanted: torch.Tensor, rtol: float | None, atol: float | None) -> tuple[Errors, bool]:
    """The largest differences, and whether all are within the tolerances. Equal infinities, and two NaN, do not differ."""
    rtol = _RTOL.get(wanted.dtype, 0.0) if rtol is None else rtol
    wide = torch.complex128 if wanted.dtype.is_complex else torch.float64
    got, wanted = got.to(wide), wanted.to(wide)
    same = (got == wanted) | (got.isnan() & wanted.isnan())
    if bool(same.all()):
        return Errors(), True
    size = wanted.abs()
    if atol is None:
        atol = rtol * float(size[size.isfinite()].max()) if bool(size.isfinite().any()) else 0.0
    absolute = torch.where(same, 0.0, (got - wanted).abs().nan_to_num(nan=torch.inf, posinf=torch.inf))
    relative = torch.where(same, 0.0, (absolute / size).nan_to_num(nan=torch.inf, posinf=torch.inf))
    return Errors(float(absolute.max()), float(relative.max())), bool((absolute <= atol + rtol * size.nan_to_num(0.0)).all())


def _line() -> tuple[str, bool]:
    """The user's line, and whether this is a backward pass, where it is that of the forward operator."""
    node = torch._C._current_autograd_node()
    if node is None:
        return user_line(), False
    for frame in reversed(node.metadata.get("traceback_", ())):
        found = _FRAME.search(frame)
        if found and not is_library(found["file"]):
            return f"{found['file']}:{found['line']}", True
    return "unknown", True


def _shown(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _told(errors: Errors) -> str:
    return f"(largest error: absolute {errors.absolute:.3g}, relative {errors.relative:.3g})"
