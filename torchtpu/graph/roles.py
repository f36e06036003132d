"""The role of every argument of an operator: which numbers are inputs of the program, and which are part of its key.

Numbers that change from step to step (learning rates, bias corrections, ``alpha``, ``value``) are inputs, so that a program serves
every step. Numbers that decide shape, algorithm or semantics (dims, exponents, eps) are part of the key. The role decides, never
the value: a warm-up's learning rate is 0. The recorder asks once an operator.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torchtpu.graph.functional import functional_overload
from torchtpu.graph.overloads import key_of, overload
from torchtpu.graph.value_errors import VALUE_ERRORS, VALUE_ERRORS_OF_FLOATS
from torchtpu.rules import find

STATIC = 0
RUN_TIME = 1
STATIC_AT_DEFAULT = 2
STATIC_AT_ZERO = 4
PROMOTED = 8  # part of the key until it is seen to vary

_BY_ARGUMENT = {
    "alpha": RUN_TIME | STATIC_AT_DEFAULT,
    "beta": RUN_TIME | STATIC_AT_DEFAULT | STATIC_AT_ZERO,  # at 0 the added tensor is ignored, NaN included
    "other": RUN_TIME,
    "scalar": RUN_TIME,
    "scalars": RUN_TIME,
    "lr": RUN_TIME,
    "beta1": RUN_TIME,
    "beta2": RUN_TIME,
    "weight_decay": RUN_TIME | STATIC_AT_ZERO,
}
# Arguments whose name says enough only together with the operator's.
_BY_OPERATOR = {
    ("addcmul", "value"): RUN_TIME | STATIC_AT_DEFAULT,
    ("addcdiv", "value"): RUN_TIME | STATIC_AT_DEFAULT,
    ("masked_fill", "value"): RUN_TIME,
    ("index_fill", "value"): RUN_TIME,
    ("lerp", "weight"): RUN_TIME,
    ("fused_sgd", "momentum"): RUN_TIME | STATIC_AT_ZERO,
    ("fill", "value"): PROMOTED,
    # Exact integer arithmetic with a known divisor or mask is much cheaper, and these hardly ever change.
    ("remainder", "other"): STATIC,
    ("fmod", "other"): STATIC,
    ("floor_divide", "other"): STATIC,
    ("bitwise_and", "other"): STATIC,
    ("bitwise_or", "other"): STATIC,
    ("bitwise_xor", "other"): STATIC,
    ("bitwise_left_shift", "other"): STATIC,
    ("bitwise_right_shift", "other"): STATIC,
}
_FILLS = frozenset({"aten::fill_.Scalar", "aten::zero_"})
_OVERWRITES_SELF = frozenset({
    "fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_", "geometric_",
    "bernoulli_",
})
_USES_PRECISION = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "dot", "vdot", "mv", "addmv", "addr", "convolution", "convolution_backward",
    "_slow_conv2d_forward", "_slow_conv2d_backward", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d",
    "slow_conv_transpose2d", "slow_conv_transpose3d",
    "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_fused_attention_overrideable_backward",
    "_addmm_activation", "_grouped_mm", "_cudnn_rnn", "_cudnn_rnn_backward", "region",
})


@dataclass(frozen=True)
class Description:
    """Roles of one operator's arguments, in the order of its schema."""

    roles: list[int]
    write_only: list[bool]
    takes_cpu: list[bool]
    uses_precision: bool
    is_fill: bool
    value_errors: bool
    value_errors_of_floats: bool
    wide_numbers: bool  # run-time numbers are float64 whatever the data: 1 - beta is taken of them


def _family(name: str) -> str:
    """``aten::_foreach_addcmul_.Scalar`` -> ``addcmul``: what the per-argument tables speak of."""
    base = name.partition("::")[2].partition(".")[0].rstrip("_")
    return base.removeprefix("_foreach_").removeprefix("_")


@functools.cache
def describe(name: str) -> Description:
    """Roles of the arguments of ``name``, such as ``"aten::add.Tensor"``."""
    op = overload(name)
    family = _family(name)
    packet = name.partition("::")[2].partition(".")[0]
    roles, write_only, takes_cpu = [], [], []
    for argument in op._schema.arguments:
        kind = str(argument.real_type)
        number = any(word in kind for word in ("Scalar", "float", "number")) and "ScalarType" not in kind
        role = _BY_OPERATOR.get((family, argument.name), _BY_ARGUMENT.get(argument.name, STATIC))
        roles.append(role if number else STATIC)
        write_only.append(argument.name == "self" and packet in _OVERWRITES_SELF)
        takes_cpu.append(kind == "List[Optional[Tensor]]" or (argument.name == "indices" and kind.startswith("Optional")))
    functional = functional_overload(op) or op
    decomposed = find(key_of(functional)) is None
    return Description(
        roles, write_only, takes_cpu, packet.rstrip("_") in _USES_PRECISION or decomposed, name in _FILLS,
        family in VALUE_ERRORS, family in VALUE_ERRORS_OF_FLOATS, wide_numbers=family.startswith("fused_"))


