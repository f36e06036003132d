"""A recorded program: nodes, their wiring, and the one JAX function that they make.

The recorder describes a program only when it has to be compiled; see ``Launch::describe`` in csrc/python/Launch.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from torchtpu import dtypes
from torchtpu.graph.lowered import Lowered

VALUE, INPUT, NOTHING = 0, 1, 2  # kinds of a node's inputs; csrc/record/Program.h
SLOT_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int64", "complex64", "complex128"))


@dataclass(frozen=True)
class Node:
    """One operator of the program."""

    lowered: Lowered
    refs: list[tuple[int, int]]  # one per buffer of the call: kind and index
    uses: list[tuple[int, int]]  # run-time numbers: dtype class and slot
    first_value: int
    num_values: int
    draw: int  # first row in the table of random states, or -1
    recomputed: bool  # forward work repeated inside a backward pass


@dataclass(frozen=True)
class RecordedProgram:
    """What was recorded between two boundaries."""

    key: str
    reason: str
    device: int
    fills: bool
    nodes: list[Node]
    inputs: list[tuple[torch.dtype, tuple[int, ...]]]
    outputs: list[int]
    donated: list[int]
    replacements: list[tuple[int, int]]  # a donated input, and the output that is its buffer's new content
    num_slots: list[int]
    num_draws: int

    @classmethod
    def parse(cls, sent: dict[str, Any]) -> RecordedProgram:
        """The program as the core describes it."""
        return cls(**{**sent, "nodes": [Node(*node) for node in sent["nodes"]]})

    def needed_nodes(self) -> list[int]:
        """Nodes that an output depends on, in order: dead work is never computed."""
        maker = {
            value: index for index, node in enumerate(self.nodes)
            for value in range(node.first_value, node.first_value + node.num_values)
        }
        needed: set[int] = set()
        todo = [maker[output] for output in self.outputs]
        while todo:
            index = todo.pop()
            if index not in needed:
                needed.add(index)
                todo += [maker[i] for kind, i in self.nodes[index].refs if kind == VALUE]
        return sorted(needed)

    def argument_inputs(self) -> list[int]:
        """Inputs that a needed node reads, in the order in which the function takes them: the replaced ones first.

        JAX lets a result take over the memory of a donated argument of its shape and dtype, in the order in which they come. A
        parameter's new value belongs where the old one was: anywhere else, something that is still to be read would have to be
        copied away first. With these in front, and their replacements in front of the results, the pairs are right.
        """
        read = {i for n in self.needed_nodes() for kind, i in self.nodes[n].refs if kind == INPUT}
        replaced = [i for i, _ in self.replacements if i in read]
        return replaced + sorted(read.difference(replaced))

    def results(self) -> list[int]:
        """The outputs, in the order in which the function returns them: replacements of arguments first, in their order."""
        read = set(self.argument_inputs())
        replacing = dict.fromkeys(value for i, value in self.replacements if i in read)
        return [*replacing, *(value for value in self.outputs if value not in replacing)]

    def leading_avals(self) -> list[jax.ShapeDtypeStruct]:
        """Arguments before the inputs: one vector of run-time numbers a dtype, then the random states."""
        avals = [
            jax.ShapeDtypeStruct((count,), dtype) for count, dtype in zip(self.num_slots, SLOT_DTYPES, strict=True) if count
        ]
        return avals + ([jax.ShapeDtypeStruct((self.num_draws, 4), np.uint32)] if self.num_draws else [])

    def input_avals(self) -> list[jax.ShapeDtypeStruct]:
        """Arguments that are arrays of buffers."""
        return [
            jax.ShapeDtypeStruct(tuple(shape), dtypes.to_numpy(dtype))
            for dtype, shape in (self.inputs[i] for i in self.argument_inputs())
        ]

    def donated_positions(self) -> tuple[int, ...]:
        """Positions, among all arguments, of the inputs whose memory the outputs may take over."""
        donated, first = set(self.donated), len(self.leading_avals())
        return tuple(first + p for p, i in enumerate(self.argument_inputs()) if i in donated)

    def function(self) -> Callable[..., list[jax.Array]]:
        """The program as one function of its arguments.

        A token follows the outputs: it is there when the program has finished, and holding it keeps no memory from being donated.
        """

        def program(*arguments: jax.Array) -> list[jax.Array]:
            return [*_Run(self, arguments).outputs(), jnp.zeros((), np.int8)]

        program.__name__ = f"step_{len(self.nodes)}_ops"
        return program


class _Run:
    """One trace of a program."""

    def __init__(self, program: RecordedProgram, arguments: Sequence[jax.Array]) -> None:
        self.program = program
        stream = iter(arguments)
        self.slots = [_scalars(next(stream), count) if count else [] for count in program.num_slots]
        self.draws = next(stream) if program.num_draws else None
        self.inputs = dict(zip(program.argument_inputs(), stream, strict=True))
        self.values: dict[int, jax.Array] = {}
        self.behind_barrier: dict[tuple[int, int], jax.Array] = {}

    def outputs(self) -> list[jax.Array]:
        previous: Node | None = None
        needed = self.program.needed_nodes()
        for position, index in enumerate(needed):
            node = self.program.nodes[index]
            if node.recomputed and not (previous is not None and previous.recomputed):
                self._raise_barrier(needed[position:], previous)
            self._run(node)
            previous = node
        return [self.values[output] for output in self.program.results()]

    def _run(self, node: Node) -> None:
        bases = [self._value(ref, node.recomputed) for ref in node.refs]
        numbers = [self.slots[group][slot] for group, slot in node.uses]
        rows = slice(node.draw, node.draw + node.lowered.num_draws)
        words = self.draws[rows] if node.draw >= 0 and self.draws is not None else None
        results = node.lowered.jitted(bases, numbers, words)
        self.values.update(zip(range(node.first_value, node.first_value + node.num_values), results, strict=True))

    def _value(self, ref: tuple[int, int], recomputed: bool) -> jax.Array | None:
        kind, index = ref
        if kind == NOTHING:
            return None
        if recomputed and ref in self.behind_barrier:
            return self.behind_barrier[ref]
        return self.values[index] if kind == VALUE else self.inputs[index]

    def _raise_barrier(self, rest: list[int], previous: Node | None) -> None:
        """Recomputation would be merged with the forward pass by common-subexpression elimination, and would then save no memory.

        So everything that a run of recomputed nodes takes from outside passes through one barrier, together with the gradient that
        arrived last: it is not the same value any more, and it does not exist before that gradient does.
        """
        made: set[int] = set()
        outside: dict[tuple[int, int], None] = {}
        for index in rest:
            node = self.program.nodes[index]
            if not node.recomputed:
                break
            outside.update(dict.fromkeys(r for r in node.refs if r[0] == INPUT or (r[0] == VALUE and r[1] not in made)))
            made.update(range(node.first_value, node.first_value + node.num_values))
        refs = list(outside)
        arrays = [self.values[i] if kind == VALUE else self.inputs[i] for kind, i in refs if kind != NOTHING]
        gradient = [self.values[previous.first_value]] if previous is not None and previous.num_values else []
        passed = lax.optimization_barrier((*arrays, *gradient))
        self.behind_barrier = dict(zip(refs, passed, strict=False))


def _scalars(vector: jax.Array, count: int) -> list[jax.Array]:
    return [jnp.reshape(lax.slice(vector, (i,), (i + 1,)), ()) for i in range(count)]
