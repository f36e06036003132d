"""What makes one recorded program another than one that is known: the answer to "why did it compile again".

Programs are compared by their operators first, then by what each of them is given, by the wiring, by what is kept of the results,
and by the memory that may be reused; the first that differs is the one told. All of it takes time linear in the operators, but for
the part between the first and the last difference, which is aligned only where it is short.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument
from torchtpu.graph.lowered import Lowered
from torchtpu.graph.overloads import overload
from torchtpu.graph.program import INPUT, VALUE, RecordedProgram

_MAX_ALIGNED = 400  # operators on either side that are aligned one by one
_MAX_SHOWN = 3  # operators named in one sentence


@dataclass(frozen=True)
class Difference:
    """How a program differs from the nearest one known before it.

    Attributes:
        kind: "new" (nothing similar was known), "dropped" (the same one was known, and is not any more), "end", "operators",
            "order", "shape", "dtype", "argument", "graph", "wiring", "kept", "freed", "memory" or "numbers".
        text: a sentence without its full stop.
        nearest: key of the other program; empty for "new".
    """

    kind: str
    text: str
    nearest: str = ""


NOTHING_SIMILAR = Difference("new", "no similar program was known")


@dataclass(frozen=True)
class Known:
    """A program to compare with, and the line at which it was made."""

    program: RecordedProgram
    line: str
    ops: tuple[str, ...]
    bag: Counter[str]

    @classmethod
    def of(cls, program: RecordedProgram, line: str) -> Known:
        """The program with what comparing it needs."""
        ops = tuple(node.lowered.op for node in program.nodes)
        return cls(program, line, ops, Counter(ops))

    def distance(self, other: Known) -> float | None:
        """Operators that are in one only, and operators given something else; None where less than half is shared."""
        shared = sum((self.bag & other.bag).values())
        if 2 * shared < max(len(self.ops), len(other.ops)):
            return None
        begin, end = _common_ends(self.ops, other.ops)
        pairs = [*zip(self.program.nodes[:begin], other.program.nodes, strict=False)]
        if end:
            pairs += zip(self.program.nodes[-end:], other.program.nodes[-end:], strict=True)
        moved = min(len(self.ops), len(other.ops)) - len(pairs)
        changed = sum(mine.lowered is not theirs.lowered for mine, theirs in pairs)
        results = 0.0 if self.program.outputs == other.program.outputs else 0.5
        return len(self.ops) + len(other.ops) - 2 * shared + moved + changed + results


def nearest(program: Known, known: Sequence[Known]) -> Known | None:
    """The most similar of the known programs; of equally similar ones the newest."""
    best, least = None, float("inf")
    for other in known:
        if other.program.fills != program.program.fills or other.program.device != program.program.device:
            continue
        distance = other.distance(program)
        if distance is not None and distance <= least:
            best, least = other, distance
    return best


def difference(program: Known, known: Sequence[Known]) -> Difference:
    """Why the program is none of the known ones."""
    other = nearest(program, known)
    if other is None:
        return NOTHING_SIMILAR
    if other.program.key == program.program.key:
        return Difference("dropped", f"the same program was made at {other.line}, and has been dropped since", other.program.key)
    kind, text = _compare(program, other)
    return Difference(kind, f"unlike the program of {other.line}, {text}", other.program.key)


def _compare(new: Known, old: Known) -> tuple[str, str]:
    if new.ops != old.ops:
        return _other_end(new, old) or _other_operators(new.ops, old.ops)
    return (
        _other_arguments(new.program, old.program) or _other_wiring(new.program, old.program)
        or _other_results(new.program, old.program) or _other_memory(new.program, old.program)
        or ("numbers", "run-time numbers that were equal to each other differ now, or the other way round"))


# ---- operators ----


def _common_ends(first: Sequence[str], second: Sequence[str]) -> tuple[int, int]:
    """Lengths of the common beginning and, behind it, of the common end."""
    limit = min(len(first), len(second))
    begin = next((i for i in range(limit) if first[i] != second[i]), limit)
    end = next((i for i in range(limit - begin) if first[-1 - i] != second[-1 - i]), limit - begin)
    return begin, end


def _other_end(new: Known, old: Known) -> tuple[str, str] | None:
    """Where one is the beginning of the other: the same work, cut at another place."""
    shared = min(len(new.ops), len(old.ops))
    if new.ops[:shared] != old.ops[:shared]:
        return None
    when = "earlier" if len(new.ops) == shared else "later"
    mine, theirs = (f"{len(known.ops)} operators ({known.program.reason})" for known in (new, old))
    return "end", f"it ended {when}, after {mine}, not {theirs}"


def _other_operators(new: Sequence[str], old: Sequence[str]) -> tuple[str, str]:
    begin, end = _common_ends(new, old)
    mine, theirs = new[begin:len(new) - end], old[begin:len(old) - end]
    if Counter(mine) == Counter(theirs):
        return "order", f"the same operators come in another order from operator {begin} on, {new[begin]} where {old[begin]} was"
    if len(mine) <= _MAX_ALIGNED and len(theirs) <= _MAX_ALIGNED:
        blocks = difflib.SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes()
        added = [op for tag, _, _, low, high in blocks if tag != "equal" for op in mine[low:high]]
        gone = [op for tag, low, high, _, _ in blocks if tag != "equal" for op in theirs[low:high]]
    else:
        added, gone = list((Counter(mine) - Counter(theirs)).elements()), list((Counter(theirs) - Counter(mine)).elements())
    place = f"from operator {begin} on" + (f" (after {new[begin - 1]})" if begin else "")
    parts = [f"{len(ops)} {word}: {_some(ops)}" for ops, word in ((added, "more"), (gone, "fewer")) if ops]
    return "operators", f"it has other operators {place}; " + "; ".join(parts)


def _some(ops: Sequence[str]) -> str:
    names = [name if count == 1 else f"{count} x {name}" for name, count in Counter(ops).items()]
    return ", ".join(names[:_MAX_SHOWN]) + (", ..." if len(names) > _MAX_SHOWN else "")


def _place(program: RecordedProgram, index: int) -> str:
    return f"{program.nodes[index].lowered.op} (operator {index} of {len(program.nodes)})"


# ---- what an operator is given ----


def _other_arguments(new: RecordedProgram, old: RecordedProgram) -> tuple[str, str] | None:
    changed = [i for i, (a, b) in enumerate(zip(new.nodes, old.nodes, strict=True)) if a.lowered is not b.lowered]
    if not changed:
        return None
    kind, text = _other_call(new.nodes[changed[0]].lowered, old.nodes[changed[0]].lowered)
    later = len(changed) - 1
    rest = f", and {later} later operator{'s differ' if later > 1 else ' differs'} too" if later else ""
    return kind, f"{_place(new, changed[0])} {text}{rest}"


def _other_call(new: Lowered, old: Lowered) -> tuple[str, str]:
    names = [argument.name for argument in overload(new.op)._schema.arguments]
    for name, mine, theirs in _paired(names, new.arguments, old.arguments):
        if isinstance(mine, RunTimeNumber) and isinstance(theirs, RunTimeNumber):
            continue
        if mine == theirs and type(mine) is type(theirs):
            continue
        if new.op == "torchtpu::region" and name == "graph":
            return "graph", "is another graph of torch.compile"
        kind, was, now = _changed(theirs, mine)
        return kind, f"got {name}: {now} where it was {was}"
    if new.context.matmul_precision != old.context.matmul_precision:
        return "argument", (f"runs in matmul precision {new.context.matmul_precision.name} "
                            f"where it was {old.context.matmul_precision.name}")
    if [(b.shape, b.dtype) for b in new.buffers] != [(b.shape, b.dtype) for b in old.buffers]:
        return "shape", f"reads memory of shape {_shapes(new)} where it was {_shapes(old)}"
    return "argument", "writes its results to memory of another layout"


def _paired(names: Sequence[str], new: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    for index, (mine, theirs) in enumerate(zip(new, old, strict=False)):
        name = names[index] if index < len(names) else f"argument {index}"
        if isinstance(mine, list) and isinstance(theirs, list) and any(isinstance(leaf, TensorArgument) for leaf in mine):
            if len(mine) != len(theirs):
                yield name, f"{len(mine)} tensors", f"{len(theirs)} tensors"
            yield from _paired([f"{name}[{i}]" for i in range(len(mine))], mine, theirs)
        else:
            yield name, mine, theirs


def _changed(old: Any, new: Any) -> tuple[str, str, str]:
    """Kind of the change, then both sides, each with what tells them apart."""
    if isinstance(old, TensorArgument) and isinstance(new, TensorArgument):
        was, now = _shown(old), _shown(new)
        if old.dtype != new.dtype:
            return "dtype", was, now
        if old.sizes != new.sizes:
            return "shape", was, now
        if (old.strides, old.offset) != (new.strides, new.offset):
            return "shape", _laid_out(old), _laid_out(new)
        if old.buffer != new.buffer:
            return "wiring", f"{was} of its own", f"{now} that shares memory with another argument, or no longer does"
        return "argument", _with_bits(old), _with_bits(new)
    return ("dtype" if isinstance(old, HostScalar) and isinstance(new, HostScalar) else "argument"), _shown(old), _shown(new)


def _laid_out(tensor: TensorArgument) -> str:
    return f"{_shown(tensor)} with strides {tensor.strides} from element {tensor.offset}"


def _with_bits(tensor: TensorArgument) -> str:
    return f"{_shown(tensor)}{' conjugated' * tensor.conjugate}{' negated' * tensor.negative}"


def _shown(value: Any) -> str:
    if isinstance(value, TensorArgument):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.sizes)}"
    if isinstance(value, HostScalar):
        return f"a {str(value.dtype).removeprefix('torch.')} number of the host"
    if isinstance(value, RunTimeNumber):
        return "a run-time number"
    return value if isinstance(value, str) else repr(value)


def _shapes(lowered: Lowered) -> str:
    return ", ".join(f"{np.dtype(b.dtype).name}{list(b.shape)}" for b in lowered.buffers)


# ---- wiring, results, memory ----


def _other_wiring(new: RecordedProgram, old: RecordedProgram) -> tuple[str, str] | None:
    for index, (mine, theirs) in enumerate(zip(new.nodes, old.nodes, strict=True)):
        for position, (now, was) in enumerate(zip(mine.refs, theirs.refs, strict=True)):
            if now != was:
                where = f"{_place(new, index)} reads {_source(new, now)} as tensor {position} where it read {_source(old, was)}"
                return "wiring", where
        if mine.recomputed != theirs.recomputed:
            return "wiring", f"{_place(new, index)} is {'' if mine.recomputed else 'no longer '}recomputed in a backward pass"
    return None


def _source(program: RecordedProgram, ref: tuple[int, int]) -> str:
    kind, index = ref
    if kind == VALUE:
        return f"a result of {_place(program, _maker(program, index))}"
    return f"input {index} ({_described(*program.inputs[index])})" if kind == INPUT else "memory never written"


def _maker(program: RecordedProgram, value: int) -> int:
    return next(i for i, node in enumerate(program.nodes) if node.first_value <= value < node.first_value + node.num_values)


def _described(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def _other_results(new: RecordedProgram, old: RecordedProgram) -> tuple[str, str] | None:
    kept, freed = sorted({*new.outputs} - {*old.outputs}), sorted({*old.outputs} - {*new.outputs})
    if not kept and not freed:
        return None
    values, verb = (kept, "still held by a tensor") if kept else (freed, "no longer held by any tensor")
    more = f", and {len(values) - 1} more" if len(values) > 1 else ""
    also = f"; {len(freed)} others are no longer held" if kept and freed else ""
    return "kept" if kept else "freed", f"the result of {_place(new, _maker(new, values[0]))}{more} is {verb}{also}"


def _other_memory(new: RecordedProgram, old: RecordedProgram) -> tuple[str, str] | None:
    if (new.donated, new.replacements) == (old.donated, old.replacements):
        return None
    changed = {*new.donated} ^ {*old.donated}
    if not changed:
        return "memory", "other results take over the memory of its inputs"
    index = min(changed)
    what = f"input {index} ({_described(*new.inputs[index])})"
    if index in new.donated:
        return "memory", f"nothing else holds {what} any more, so its memory is reused"
    return "memory", f"something else still holds {what}, so its memory cannot be reused"
