"""One recorded signature as a JAX function: read the views, apply the rule, write the results where they belong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from torchtpu import dtypes
from torchtpu.errors import RuleError
from torchtpu.graph import views
from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument, map_leaves
from torchtpu.graph.views import View
from torchtpu.rules.context import RuleContext


@dataclass(frozen=True)
class Output:
    """A new tensor: its logical shape, and the order of its dims in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype
    order: tuple[int, ...] | None  # None: row-major


@dataclass(frozen=True)
class Write:
    """An argument that is mutated: the view of its buffer that gets the new value."""

    buffer: int
    view: View
    covers: bool  # the whole buffer is replaced
    order: tuple[int, ...] | None  # of a covering write whose view permutes the memory
    conjugate: bool
    negative: bool


@dataclass(frozen=True)
class Lowered:
    """A signature's computation.

    Called with the values of the call's buffers (None: not read, or never written), its run-time numbers as 0-d arrays and, for
    random operators, four words a draw (seed and offset, high word first). Returns new outputs, then the new values of mutated
    buffers.
    """

    op: str
    function: Callable[..., Any]  # takes the context, then the arguments
    context: RuleContext
    arguments: list[Any]
    keywords: tuple[str, ...]  # names of the trailing arguments that are keyword-only
    buffers: tuple[jax.ShapeDtypeStruct, ...]  # what a buffer without a value stands for
    slot_dtypes: tuple[np.dtype, ...]
    outputs: tuple[Output, ...]
    writes: tuple[Write, ...]
    returned: tuple[bool, ...] = ()  # for every return of the rule, lists flattened: whether it is a tensor
    num_draws: int = 0  # of random numbers
    in_turn: bool = False  # each write sees those before it: a list of tensors some of which share elements

    def __call__(self, bases: Sequence[jax.Array | None], numbers: Sequence[jax.Array], words: jax.Array | None) -> tuple:
        values = self._values(bases)
        if self.in_turn:
            return self._write_in_turn(values, numbers)
        results = self._apply(values, numbers, words)
        if len(results) != len(self.outputs) + len(self.writes):
            raise RuleError(op=self.op, what=(
                f"its rule returned {len(results)} arrays where {len(self.outputs)} outputs and {len(self.writes)} new values "
                "of arguments were expected"))
        fresh = [_in_memory_order(self._checked(r, o), o.order) for r, o in zip(results, self.outputs, strict=False)]
        for write, result in zip(self.writes, results[len(self.outputs):], strict=True):
            values[write.buffer] = self._written(values[write.buffer], write, result)
        written = dict.fromkeys(write.buffer for write in self.writes)
        return (*fresh, *(values[buffer] for buffer in written))

    def _write_in_turn(self, values: list[jax.Array], numbers: Sequence[jax.Array]) -> tuple:
        """Everything is computed anew for each write; XLA drops what the write does not take."""
        for place, write in enumerate(self.writes):
            result = self._apply(values, numbers, None)[place]
            values[write.buffer] = self._written(values[write.buffer], write, result)
        return tuple(values[buffer] for buffer in dict.fromkeys(write.buffer for write in self.writes))

    def apply(self, bases: Sequence[jax.Array | None], numbers: Sequence[jax.Array]) -> list[jax.Array]:
        """What the rule returns for concrete arrays, for operators whose result shape depends on values."""
        return self._apply(self._values(bases), numbers, None)

    def _values(self, bases: Sequence[jax.Array | None]) -> list[jax.Array]:
        return [
            jnp.zeros(blank.shape, blank.dtype) if base is None else base
            for base, blank in zip(bases, self.buffers, strict=True)
        ]

    @functools.cached_property
    def jitted(self) -> Callable[..., tuple]:
        """The same, traced once: a program calls it as a function of its own."""

        def call(bases: list, numbers: list, words: jax.Array | None) -> tuple:
            return self(bases, numbers, words)

        call.__name__ = call.__qualname__ = self.op.replace("::", "_").replace(".", "_")
        return jax.jit(call)

    def _apply(self, values: list[jax.Array], numbers: Sequence[jax.Array], words: jax.Array | None) -> list[jax.Array]:
        stream = iter(numbers)
        slots = iter(self.slot_dtypes)

        def concrete(leaf: Any) -> Any:
            if isinstance(leaf, TensorArgument):
                return _read(values[leaf.buffer], leaf)
            if isinstance(leaf, HostScalar | RunTimeNumber):
                return jnp.asarray(next(stream)).astype(next(slots))
            return leaf

        arguments = map_leaves(self.arguments, concrete)
        split = len(arguments) - len(self.keywords)
        context = self.context
        if words is not None:
            context = replace(context, draws=tuple(functools.partial(key_of_draw, row) for row in words))
        try:
            results = self.function(context, *arguments[:split], **dict(zip(self.keywords, arguments[split:], strict=True)))
        except (TypeError, ValueError, IndexError, AssertionError, NotImplementedError) as error:
            raise RuleError(op=self.op, what=f"its rule failed with {type(error).__name__}: {error}") from error
        flat = _flatten(results)
        if len(flat) == len(self.returned):  # None and sizes are known already
            flat = [r for r, is_tensor in zip(flat, self.returned, strict=True) if is_tensor]
        return [r for r in flat if not isinstance(r, int)]

    def _checked(self, result: jax.Array | None, output: Output) -> jax.Array:
        if result is None:  # PyTorch allocates it although nobody asked for it
            return jnp.zeros(output.shape, output.dtype)
        result = jnp.asarray(result)
        if tuple(result.shape) != output.shape:
            raise RuleError(op=self.op, what=f"its rule returned shape {tuple(result.shape)} where {output.shape} was expected")
        return _cast(result, output.dtype)

    def _written(self, base: jax.Array, write: Write, result: jax.Array) -> jax.Array:
        result = jnp.asarray(result)
        if tuple(result.shape) != write.view.sizes:
            result = jnp.broadcast_to(result, write.view.sizes)
        result = _cast(result, write.view.dtype)
        result = -result if write.negative else result
        result = jnp.conj(result) if write.conjugate else result
        return _in_memory_order(result, write.order) if write.covers else views.write(base, write.view, result)


def key_of_draw(words: jax.Array) -> jax.Array:
    """Seed and offset make the key; each pair has a stream of its own."""
    key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, words[2]), words[3])


def _read(base: jax.Array, tensor: TensorArgument) -> jax.Array:
    view = View(dtypes.to_numpy(tensor.dtype), tensor.sizes, tensor.strides, tensor.offset)
    value = views.read(base, view)
    if tensor.conjugate:
        value = jnp.conj(value)
    return -value if tensor.negative else value


def _in_memory_order(value: jax.Array, order: tuple[int, ...] | None) -> jax.Array:
    return value if order is None else jnp.transpose(value, order)


def _cast(value: jax.Array, dtype: np.dtype) -> jax.Array:
    if value.dtype == dtype:
        return value
    if jnp.issubdtype(value.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        value = jnp.real(value)
    if dtype == np.bool_:
        return value != 0
    return value.astype(dtype)


def _flatten(results: Any) -> list[Any]:
    if isinstance(results, list | tuple):
        return [leaf for item in results for leaf in _flatten(item)]
    return [results]
