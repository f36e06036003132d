"""From a recorded program to a running executable: the disk cache, compiling, and launching."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import time
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from torchtpu import _C
from torchtpu.errors import CompileError, ExecutionError, OutOfMemoryError, UnsupportedDtypeError
from torchtpu.graph.program import RecordedProgram
from torchtpu.runtime import compile_limits, disk_cache, installation, known_programs, memory, progress, step_hooks, trace
from torchtpu.runtime.counters import ProgramRecord, counters
from torchtpu.runtime.user_code import user_line

_MEMORY_FIELDS = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes", "alias_size_in_bytes")
# What a payload of another build of JAX, under the same version, may raise: JAX unpickles it before XLA reads it.
_UNREADABLE = (
    jax.errors.JaxRuntimeError, pickle.UnpicklingError, ValueError, TypeError, EOFError, AttributeError, ImportError, LookupError)
_CHECKED_BYTES = 64 << 20  # smaller needs are not worth asking the device for its free memory


@dataclass
class Executable:
    """A compiled program. ``memory``: argument, output, temp and alias bytes of one launch."""

    call: Any
    memory: dict[str, int]
    program: RecordedProgram
    record: ProgramRecord | None = None

    @property
    def arguments(self) -> list[int]:
        """The inputs, in the order in which it takes them, after the run-time numbers."""
        return self.program.argument_inputs()

    @property
    def results(self) -> list[int]:
        """The values that it returns, before the token of its end."""
        return self.program.results()

    @property
    def transient_bytes(self) -> int:
        """Bytes needed while it runs, beyond its arguments and outputs."""
        return self.memory["temp_bytes"]

    @property
    def extra_bytes(self) -> int:
        """Bytes that a launch allocates beyond its arguments."""
        return max(self.memory["output_bytes"] + self.memory["temp_bytes"] - self.memory["alias_bytes"], 0)


last_executable: Executable | None = None
last_abstract: RecordedProgram | None = None


def build(program: RecordedProgram, device: jax.Device) -> Executable:
    """Load the program from disk, or compile it and store it there.

    Raises:
        CompileError: XLA refused it. Nothing ran.
        CompileLimitError: no more compiles are allowed here. Nothing ran, and the program waits as before.
    """
    global last_executable
    start, line, why = time.perf_counter(), user_line(), None
    gradients = step_hooks.kept_gradients(_C)
    executable = _load(program, device)
    if executable is None:
        why = known_programs.difference(program, line)
        compile_limits.admit(len(program.nodes), line, program.reason, why)
        with progress.shown(f"compiling {len(program.nodes)} operators, ended at {line} ({program.reason})"):
            executable = _compile(program, device)
        counters.compiles += 1
        counters.compile_s += time.perf_counter() - start
    else:
        counters.disk_hits += 1
    known_programs.add(program, line)
    executable.record = ProgramRecord(
        program.key, program.reason, len(program.nodes), program.fills, "compiled" if why else "disk",
        time.perf_counter() - start, executable.memory, line, why, *gradients)
    counters.programs.append(executable.record)
    trace.program(executable.record, program)
    if not program.fills:
        last_executable = executable
    return executable


def launch(executable: Executable, arguments: list[Any], device: jax.Device) -> list[jax.Array]:
    """Run the program asynchronously; its outputs may be used at once. The last one is the token of its end.

    Raises:
        OutOfMemoryError: the device has too little free memory; found before anything was donated.
        ExecutionError: the launch failed.
    """
    if executable.extra_bytes > _CHECKED_BYTES:
        memory.require(executable.extra_bytes, device)
    counters.launches += 1
    if executable.record is not None:
        executable.record.num_launches += 1
    try:
        with jax.enable_x64(True):
            return executable.call(*arguments)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise memory.out_of_memory(executable.extra_bytes, device) from error
        raise ExecutionError(device=str(device), why=str(error).strip().split("\n")[0]) from error


def lowered(program: RecordedProgram, device: Any) -> jax.stages.Lowered:
    """The program in StableHLO, for a device or a sharding."""
    sharding = device if isinstance(device, jax.sharding.Sharding) else jax.sharding.SingleDeviceSharding(device)
    avals = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)
        for a in (*program.leading_avals(), *program.input_avals())
    ]
    function = jax.jit(
        program.function(), donate_argnums=program.donated_positions(), keep_unused=True, out_shardings=sharding)
    with jax.enable_x64(True):
        return function.trace(*avals).lower()


def compile_lowered(program: RecordedProgram, where: Any) -> jax.stages.Compiled:
    """Compile the program for a device, or for a sharding of a topology that need not exist here.

    Raises:
        CompileError: XLA refused it; the message is XLA's.
        OutOfMemoryError: it cannot fit the device, whatever is free.
        UnsupportedDtypeError: it has complex128 in it, and is for a TPU.
    """
    if _platform_of(where) == "tpu":
        _refuse_complex128(program)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # chosen by size, not by layout
        stage = lowered(program, where)
        trace.stablehlo(program, stage)
        try:
            with jax.enable_x64(True):
                return stage.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error) and isinstance(where, jax.Device):
                raise memory.out_of_memory(None, where) from error
            raise CompileError(num_nodes=len(program.nodes), why=str(error).strip().split("\n")[0]) from error


def _platform_of(where: Any) -> str:
    return where.platform if isinstance(where, jax.Device) else next(iter(where.device_set)).platform


def _refuse_complex128(program: RecordedProgram) -> None:
    """XLA:TPU emulates float64 and only some of complex128: the rest is not refused there, but ends the process."""
    for call in (node.lowered for node in program.nodes):
        arrays = (*call.buffers, *call.outputs, *(write.view for write in call.writes))
        if any(array.dtype == np.complex128 for array in arrays):
            raise UnsupportedDtypeError(
                op=call.op, expected="complex64 on a TPU", got="complex128",
                why="Its compiler has no complex numbers of two float64.",
                fix="Use .to(torch.complex64), or move this part to the CPU.")


def _compile(program: RecordedProgram, device: jax.Device) -> Executable:
    start = time.perf_counter()
    compiled = compile_lowered(program, device)
    executable = Executable(compiled, memory_of(compiled), program)
    _store(executable, compiled, device, time.perf_counter() - start)
    return executable


def memory_of(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Argument, output, temp and alias bytes of one launch."""
    analysis = compiled.memory_analysis()
    return {
        name.replace("_size_in_bytes", "_bytes"): int(getattr(analysis, name, 0) or 0) for name in _MEMORY_FIELDS
    }


# ---- the disk cache ----


@functools.cache
def _fingerprint(device: jax.Device) -> str:
    """Everything beside the program that an executable depends on."""
    facts = {
        **installation.facts(), "device": device.device_kind, "platform": device.client.platform_version,
        "xla_flags": os.environ.get("XLA_FLAGS", ""), "libtpu": os.environ.get("LIBTPU_INIT_ARGS", ""),
        "precision": str(jax.config.jax_default_matmul_precision),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _disk_key(program: RecordedProgram, device: jax.Device) -> str:
    return hashlib.sha256(f"{_fingerprint(device)} {device.id} {program.key}".encode()).hexdigest()


def _store(executable: Executable, compiled: jax.stages.Compiled, device: jax.Device, compile_s: float) -> None:
    disk = disk_cache.of_process()
    if disk is None:
        return
    payload, _, _ = serialize_executable.serialize(compiled)
    # All but the memory is for people: `torchtpu cache` shows it.
    header = {
        "memory": executable.memory, "num_nodes": len(executable.program.nodes), "reason": executable.program.reason,
        "compile_s": round(compile_s, 3), "line": user_line(), "device": device.device_kind, "installation": installation.facts(),
    }
    disk.put(_disk_key(executable.program, device), header, payload)


def _load(program: RecordedProgram, device: jax.Device) -> Executable | None:
    disk = disk_cache.of_process()
    entry = disk.get(_disk_key(program, device)) if disk is not None else None
    if entry is None:
        return None
    header, payload = entry
    if b"lapack_" in payload:
        _prepare_lapack()
    num_arguments = len(program.leading_avals()) + len(program.argument_inputs())
    inputs = jax.tree.structure((tuple(range(num_arguments)), {}))
    outputs = jax.tree.structure(list(range(len(program.outputs) + 1)))
    try:
        call = serialize_executable.deserialize_and_load(
            payload, inputs, outputs, backend=device.client, execution_devices=[device])
    except _UNREADABLE as error:
        warnings.warn(f"a cached program could not be loaded and is compiled again: {error}", stacklevel=2)
        return None
    return Executable(call, header["memory"], program)


def _prepare_lapack() -> None:
    """Find LAPACK's functions, as JAX does while it lowers a factorisation for the CPU: without them, calling one is a crash."""
    from jaxlib import lapack

    lapack.prepare_lapack_call("getrf_ffi", np.float32)


__all__ = ["Executable", "OutOfMemoryError", "build", "launch", "lowered"]
