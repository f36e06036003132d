"""From a call that was not seen before to its signature: what it returns, what it writes, and how it is computed.

The recorder keeps the answer for ever, so this runs once for each operator, set of shapes and set of static arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import torch

from torchtpu import dtypes
from torchtpu.errors import RuleError
from torchtpu.graph import corrections, overlaps, promotion
from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument, leaves, parse
from torchtpu.graph.functional import functional_overload, written_arguments
from torchtpu.graph.inference import Inferred, NotInferable, infer
from torchtpu.graph.lowered import Lowered, Output, Write
from torchtpu.graph.memory_order import is_row_major, memory_order, row_major
from torchtpu.graph.overloads import key_of, overload
from torchtpu.graph.roles import describe
from torchtpu.graph.rule_choice import Choice, choose
from torchtpu.graph.views import View
from torchtpu.rules.context import RuleContext, opmath

_PRECISIONS = {"highest": jax.lax.Precision.HIGHEST, "high": jax.lax.Precision.HIGH, "medium": jax.lax.Precision.DEFAULT}
_SLOT_CLASSES = {"float32": 0, "float64": 1, "int64": 2, "complex64": 3, "complex128": 4}
# Operators that write arguments without saying so in their schema, if `training` is set or there is no such argument.
_HIDDEN_WRITES = {
    "aten::batch_norm_update_stats": ("aten::batch_norm_update_stats", ("running_mean", "running_var")),
} | {
    key: ("aten::_native_batch_norm_legit_functional", (*outs, "running_mean", "running_var"))
    for key, outs in (("aten::native_batch_norm", ()), ("aten::native_batch_norm.out", ("out", "save_mean", "save_invstd")))
}
Buffer = tuple[torch.dtype | None, tuple[int, ...] | None, int]  # dtype and shape of the value (None: no value), bytes


@dataclass
class Answer:
    """A signature as csrc/python reads it."""

    kind: str
    lowering: Any = None
    outputs: list[tuple] = field(default_factory=list)  # dtype, sizes, strides, shape in memory, contiguous
    returns: list[tuple] = field(default_factory=list)
    mutations: list[tuple] = field(default_factory=list)  # buffer, dtype, shape
    reads: list[bool] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    resizes: list[tuple] = field(default_factory=list)
    num_draws: int = 0  # of random numbers


@dataclass(frozen=True)
class Call:
    """A call taken apart: the operator, the functional form that has the rule, and the arguments of both."""

    op: torch._ops.OpOverload
    functional: torch._ops.OpOverload
    arguments: list[Any]
    buffers: list[Buffer]
    written_names: tuple[str, ...]  # in the order in which the functional form returns their new values

    @property
    def written(self) -> list[TensorArgument]:
        """Tensors that the operator writes, in the order of ``written_names``."""
        by_name = {a.name: v for a, v in zip(self.op._schema.arguments, self.arguments, strict=True)}
        return [t for name in self.written_names for t in leaves([by_name[name]]) if isinstance(t, TensorArgument)]

    @property
    def rule_arguments(self) -> tuple[list[Any], tuple[str, ...]]:
        """Arguments of the functional form, and the names of the keyword-only ones at the end."""
        kept = [
            (a, v) for a, v in zip(self.op._schema.arguments, self.arguments, strict=True) if not a.is_out
        ]
        kept.sort(key=lambda pair: pair[0].kwarg_only)
        return [_for_rule(v) for _, v in kept], tuple(a.name for a, _ in kept if a.kwarg_only)


def resolve(name: str, sent: list[Any], buffers: list[Buffer]) -> Answer:
    """The signature of a call of ``name``.

    Raises:
        Exception: whatever PyTorch raises for arguments that do not fit together.
        MissingRuleError: nothing can compute the operator, and the CPU fallback is off.
    """
    op = overload(name)
    arguments = [parse(value, str(a.real_type)) for value, a in zip(sent, op._schema.arguments, strict=True)]
    functional, written = _functional_form(op, arguments)
    call = Call(op, functional, arguments, buffers, written)
    try:
        inferred = infer(op, arguments)
    except NotInferable as reason:
        return _without_inference(call, reason)
    resizes = _resizes(call, inferred)
    if resizes:
        return Answer("resize", resizes=resizes, reads=[False] * len(buffers))
    return _Resolution(call, inferred).answer()


def _functional_form(op: torch._ops.OpOverload, arguments: list[Any]) -> tuple[torch._ops.OpOverload, tuple[str, ...]]:
    """The overload that has the rule, and the arguments that are written."""
    hidden = _HIDDEN_WRITES.get(key_of(op))
    if hidden is not None:
        by_name = {a.name: v for a, v in zip(op._schema.arguments, arguments, strict=True)}
        given = tuple(name for name in hidden[1] if by_name[name] is not None)
        if by_name.get("training", True) and (given == hidden[1] or hidden[0] == key_of(op)):
            return overload(hidden[0]), given
    return functional_overload(op) or op, written_arguments(op)


def _without_inference(call: Call, reason: NotInferable) -> Answer:
    choice = choose(call.functional, None)
    reads = [True] * len(call.buffers)
    if reason.dynamic and choice.kind == "dynamic" and not call.op._schema.is_mutable:
        lowered = _lower(call, choice, outputs=(), writes=())
        return Answer("dynamic", lowering=lowered, reads=reads, slots=_slots(lowered))
    return Answer("fallback", reads=reads)


def _resizes(call: Call, inferred: Inferred) -> list[tuple]:
    """out= arguments whose shape the operator changed."""
    result = []
    outs = [index for index, a in enumerate(call.op._schema.arguments) if a.is_out]
    fresh = _results_without_out(call) if outs else []
    for place, index in enumerate(outs):
        before, after = call.arguments[index], inferred.fakes[index]
        like = fresh[place] if fresh and isinstance(fresh[place], torch.Tensor) else after
        if isinstance(before, TensorArgument) and tuple(like.shape) != before.sizes:
            result.append((index, tuple(like.shape), corrections.resized_strides(call.functional, like)))
    return result


def _results_without_out(call: Call) -> list[Any]:
    """What the functional form returns, if it takes the same arguments: an out= argument that is resized becomes like that.

    PyTorch's inference of some ``out=`` forms leaves the argument as it is, or lays it out unlike the CPU.
    """
    given = [value for value, a in zip(call.arguments, call.op._schema.arguments, strict=True) if not a.is_out]
    if call.functional == call.op or len(given) != len(call.functional._schema.arguments):
        return []
    try:
        returned = infer(call.functional, given).result
    except NotInferable:
        return []
    return list(returned) if isinstance(returned, list | tuple) else [returned]


class _Resolution:
    """The work of ``resolve`` on a call whose results are known."""

    def __init__(self, call: Call, inferred: Inferred) -> None:
        self.call = call
        self.result = Answer("node", reads=[False] * len(call.buffers))
        self.outputs: list[Output] = []
        self.writes: list[Write] = []
        self.returned: list[bool] = []
        self.inferred = inferred

    def answer(self) -> Answer:
        self._returns()
        self._mutations()
        if not self.outputs and not self.writes:
            self.result.kind = "nothing"
            return self.result
        choice = choose(self.call.functional, self.call)
        if choice.kind in ("fallback", "dynamic"):
            self.result.kind = "fallback"
            return self.result
        lowered = _lower(self.call, choice, tuple(self.outputs), tuple(self.writes), tuple(self.returned))
        self.result.lowering = lowered
        self.result.slots = _slots(lowered)
        self.result.num_draws = choice.num_draws
        self._reads()
        return self.result

    def _returns(self) -> None:
        by_fake = {
            id(fake): index for index, fake in enumerate(self.inferred.fakes) if isinstance(fake, torch.Tensor)
        }
        returned = self.inferred.result
        schema = self.call.op._schema.returns
        values = () if not schema else (returned,) if len(schema) == 1 else tuple(returned)
        for value, spec in zip(values, schema, strict=True):
            aliased = spec.alias_info is not None and spec.alias_info.is_write
            if aliased and id(value) in by_fake:
                self.result.returns.append(("arg", by_fake[id(value)]))
            elif aliased:
                self.result.returns.append(("arg", self._written_index(spec)))
            else:
                self.result.returns.append(self._new(value))

    def _written_index(self, spec: Any) -> int:
        names = spec.alias_info.before_set
        for index, argument in enumerate(self.call.op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.before_set == names:
                return index
        raise RuleError(op=key_of(self.call.op), what="returns an alias of none of its arguments")

    def _new(self, value: Any) -> tuple:
        self.returned += [isinstance(v, torch.Tensor) for v in (value if isinstance(value, list | tuple) else [value])]
        if value is None:
            return ("undefined",)
        if isinstance(value, torch.Tensor):
            self._output(value)
            return ("new", len(self.outputs) - 1)
        if isinstance(value, list | tuple):
            start = len(self.outputs)
            for item in value:
                self._output(item)
            return ("list", start, len(value))
        return ("int", int(value))

    def _output(self, fake: torch.Tensor) -> None:
        sizes, strides = tuple(fake.shape), tuple(fake.stride())
        contiguous = fake.is_contiguous() and strides == row_major(sizes)  # not so of some empty ones
        order = None if contiguous else memory_order(sizes, strides)
        if order is None and not contiguous:  # gaps or overlaps: no operator promises these of a fresh tensor
            contiguous, strides = True, row_major(sizes)
        shape = sizes if order is None else tuple(sizes[d] for d in order)
        self.outputs.append(Output(sizes, dtypes.to_numpy(fake.dtype), order))
        self.result.outputs.append((fake.dtype, sizes, strides, shape, contiguous))

    def _mutations(self) -> None:
        """New values of written buffers; several writes to one buffer are applied in order."""
        shapes: dict[int, tuple[torch.dtype, tuple[int, ...]]] = {}
        for tensor in self.call.written:
            dtype, shape, num_bytes = self.call.buffers[tensor.buffer]
            dtype, shape = shapes.get(tensor.buffer) or (dtype, shape)
            if dtype is None or shape is None:
                dtype, shape = tensor.dtype, (num_bytes // tensor.dtype.itemsize,)
            view = View(dtypes.to_numpy(tensor.dtype), tensor.sizes, tensor.strides, tensor.offset)
            order = memory_order(tensor.sizes, tensor.strides)
            covers = order is not None and tensor.offset == 0 and _num_bytes(tensor) == num_bytes
            if covers:
                dtype, shape = tensor.dtype, tuple(tensor.sizes[d] for d in order or ())
                order = None if order == tuple(range(len(tensor.sizes))) else order
            self.returned.append(True)
            self.writes.append(Write(tensor.buffer, view, covers, order if covers else None, tensor.conjugate, tensor.negative))
            shapes[tensor.buffer] = (dtype, shape)
        self.result.mutations = [(buffer, dtype, shape) for buffer, (dtype, shape) in shapes.items()]

    def _reads(self) -> None:
        """Buffers whose old value matters: those that an argument reads, and those that are written in part."""
        write_only = {a.name for a in self.call.op._schema.arguments if a.is_out} | _overwritten(self.call.op)
        for argument, value in zip(self.call.op._schema.arguments, self.call.arguments, strict=True):
            for leaf in leaves([value]):
                if isinstance(leaf, TensorArgument) and argument.name not in write_only:
                    self.result.reads[leaf.buffer] = True
        for write in self.writes:
            if not write.covers:
                self.result.reads[write.buffer] = True


def _overwritten(op: torch._ops.OpOverload) -> set[str]:
    description = describe(key_of(op))
    return {a.name for a, only in zip(op._schema.arguments, description.write_only, strict=True) if only}


def matmul_precision() -> jax.lax.Precision:
    """What ``torch.set_float32_matmul_precision`` asks for."""
    return _PRECISIONS[torch.get_float32_matmul_precision()]


def _lower(call: Call, choice: Choice, outputs: tuple[Output, ...], writes: tuple[Write, ...],
           returned: tuple[bool, ...] = ()) -> Lowered:
    arguments, keywords = call.rule_arguments
    common = promotion.common_dtype(_promoting(call))
    common_numpy = dtypes.to_numpy(common)
    results = outputs or tuple(Output(w.view.sizes, w.view.dtype, None) for w in writes)
    if outputs and writes:
        results = outputs + tuple(Output(w.view.sizes, w.view.dtype, None) for w in writes)
    context = RuleContext(
        op=key_of(call.functional),
        outputs=tuple(jax.ShapeDtypeStruct(o.shape, o.dtype) for o in results),
        common_dtype=common_numpy,
        matmul_precision=matmul_precision(),
        row_major=tuple(is_row_major(t.sizes, t.strides) for t in leaves(arguments) if isinstance(t, TensorArgument)))
    slot_dtype = np.dtype(np.float64) if describe(key_of(call.op)).wide_numbers else opmath(common_numpy)
    num_slots = sum(isinstance(leaf, HostScalar | RunTimeNumber) for leaf in leaves(arguments))
    return Lowered(
        op=key_of(call.op), function=choice.function, context=context, arguments=arguments, keywords=keywords,
        buffers=tuple(_blank(call, index) for index in range(len(call.buffers))),
        slot_dtypes=(slot_dtype,) * num_slots, outputs=outputs, writes=writes, returned=returned,
        num_draws=choice.num_draws, in_turn=overlaps.in_turn(call.op, call.arguments))


def _promoting(call: Call) -> list[Any]:
    """The arguments that take part in type promotion: tensors, and numbers that are data (not dims, sizes or options)."""
    result: list[Any] = []
    for argument, value in zip(call.op._schema.arguments, call.arguments, strict=True):
        data = "number" in str(argument.real_type) and not argument.is_out
        for leaf in leaves([value]):
            if isinstance(leaf, TensorArgument | HostScalar) and not argument.is_out:
                result.append(leaf)
            elif data and isinstance(leaf, RunTimeNumber | bool | int | float | complex):
                result.append(leaf if isinstance(leaf, RunTimeNumber) else RunTimeNumber(leaf))
    return result


def _blank(call: Call, index: int) -> jax.ShapeDtypeStruct:
    dtype, shape, num_bytes = call.buffers[index]
    if dtype is not None and shape is not None:
        return jax.ShapeDtypeStruct(shape, dtypes.to_numpy(dtype))
    for leaf in leaves(call.arguments):
        if isinstance(leaf, TensorArgument) and leaf.buffer == index:
            return jax.ShapeDtypeStruct((num_bytes // leaf.dtype.itemsize,), dtypes.to_numpy(leaf.dtype))
    raise AssertionError("a buffer that no argument looks at")


def _slots(lowered: Lowered) -> list[int]:
    return [_SLOT_CLASSES[_slot_class(dtype)] for dtype in lowered.slot_dtypes]


def _slot_class(dtype: np.dtype) -> str:
    if dtype.name in _SLOT_CLASSES:
        return dtype.name
    return "int64" if dtype.kind in "iub" else "float32"


def _for_rule(value: Any) -> Any:
    """dtypes as NumPy's; devices, layouts and memory formats are the recorder's business."""
    if isinstance(value, torch.dtype):
        return dtypes.to_numpy(value)
    return None if isinstance(value, torch.memory_format | torch.layout) else value


def _num_bytes(tensor: TensorArgument) -> int:
    return int(np.prod(tensor.sizes, dtype=np.int64)) * tensor.dtype.itemsize
