"""What a row of the operator tables says, and the maker of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from torchtpu.graph.overloads import key_of, overload

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I64, I32, U8, BOOL, C64 = torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64
FLOATS = (F32, BF16)
NUMBERS = (F32, BF16, I64)
INTS = (I64, I32, U8)
EXACT = (F32, BF16, I64, BOOL)  # of operators that move values and compute nothing


@dataclass(frozen=True)
class Sample:
    """One call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Sample:
    """The arguments of one call."""
    return Sample(args, kwargs)


class Make:
    """Makes the tensors of a row: of one dtype, the same in every run."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(2024)

    def __call__(self, *shape: int, low: float = -2, high: float = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Uniform in [low, high]; integers in the same range, and bools of both kinds."""
        dtype = dtype or self.dtype
        if dtype == torch.bool:
            return self.mask(*shape)
        if dtype.is_complex:
            parts = [self(*shape, low=low, high=high, dtype=torch.float64) for _ in range(2)]
            return torch.complex(*parts).to(dtype)
        if dtype.is_floating_point:
            values = torch.rand(shape, generator=self.generator, dtype=torch.float64)
            return (low + (high - low) * values).to(dtype)
        least = max(int(low), 0) if dtype == torch.uint8 else int(low)
        return torch.randint(least, max(int(high), least) + 1, shape, generator=self.generator).to(dtype)

    def mask(self, *shape: int) -> torch.Tensor:
        """Bools of both kinds."""
        return torch.rand(shape, generator=self.generator) > 0.5

    def index(self, length: int, *shape: int) -> torch.Tensor:
        """Places in a dimension of this length."""
        return torch.randint(0, length, shape, generator=self.generator)

    def order(self, length: int) -> torch.Tensor:
        """The places of a dimension, shuffled."""
        return torch.randperm(length, generator=self.generator)

    def distinct(self, *shape: int) -> torch.Tensor:
        """Whole numbers that are all different, shuffled."""
        count = int(torch.Size(shape).numel())
        return (self.order(count) - count // 2).reshape(shape).to(self.dtype)

    def special(self) -> torch.Tensor:
        """Zeros, infinities and NaN; of integers, small ones."""
        if self.dtype.is_floating_point:
            values = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5]
            return torch.tensor(values, dtype=self.dtype)
        return torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]).to(self.dtype)


Samples = Callable[[Make], Iterable[Sample]]


@dataclass(frozen=True)
class ExpectedFailure:
    """Dtypes (None: all) in which a test of the row fails, and why."""

    dtypes: tuple[torch.dtype, ...] | None
    reason: str
    test: str


@dataclass(frozen=True)
class Row:
    """How the rule of one operator is tested; values, gradients and strides are compared with PyTorch's on the CPU."""

    key: str
    samples: Samples
    dtypes: tuple[torch.dtype, ...] = FLOATS
    grads: bool | tuple[str, ...] = False  # whether there are gradients, or the arguments that have them
    errors: Samples | None = None
    tolerance: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)  # relative, absolute
    reference: Callable[..., Any] | None = None  # where the CPU has no kernel of the operator
    no_values: str = ""  # why values are not compared
    no_strides: str = ""  # why strides are not compared
    dense: bool = False  # only dense arguments
    first_only: bool = False  # only the first result is compared
    check: Callable[[Any], None] | None = None  # gets the device's results: for random ones
    xfails: tuple[ExpectedFailure, ...] = ()

    def xfail(self, dtypes: Sequence[torch.dtype] | None = None, *, reason: str, test: str = "values") -> Row:
        """The row, expected to fail in these dtypes."""
        failure = ExpectedFailure(None if dtypes is None else tuple(dtypes), reason, test)
        return replace(self, xfails=(*self.xfails, failure))

    def expected_failure(self, dtype: torch.dtype, test: str) -> str:
        """Why ``test`` is expected to fail in ``dtype``; empty if it is not."""
        for failure in self.xfails:
            if failure.test == test and (failure.dtypes is None or dtype in failure.dtypes):
                return failure.reason
        return ""

    @property
    def op(self) -> torch._ops.OpOverload:
        """The operator."""
        return overload(self.key)

    def on_cpu(self, sample: Sample) -> Any:
        """What PyTorch answers."""
        return (self.reference or self.op)(*sample.args, **sample.kwargs)


def rows(keys: Iterable[str], samples: Samples, dtypes: tuple[torch.dtype, ...] = FLOATS, **options: Any) -> list[Row]:
    """One row a key, alike in everything else."""
    return [Row(key, samples, dtypes, **options) for key in keys]


__all__ = [
    "BF16", "BOOL", "C64", "EXACT", "F16", "F32", "F64", "FLOATS", "I32", "I64", "INTS", "NUMBERS", "U8", "Make", "Row", "Sample",
    "call", "key_of", "rows",
]
