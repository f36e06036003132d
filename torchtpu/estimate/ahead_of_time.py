"""Compiling a recorded program for a named TPU topology, without a chip."""

from __future__ import annotations

import functools
import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from torchtpu.errors import PlatformError, TopologyError
from torchtpu.graph.program import RecordedProgram
from torchtpu.runtime import executables

# The smallest slice that libtpu describes of each generation; a program for one chip uses its first.
_SMALLEST = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "tpu7x": "tpu7x:2x2x1"}


@dataclass(frozen=True)
class Report:
    """What the compiler says of one program on one device. Bytes are of device memory; ``flops`` of one run."""

    topology: str
    device_kind: str
    hbm_peak_bytes: int
    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    flops: float
    compile_s: float
    num_nodes: int


def last_program(topology: str = "v5e") -> dict[str, Any]:
    """Report on the program recorded last (fills left out), compiled for one chip of ``topology``, as a dict.

    Raises:
        PlatformError: libtpu is not installed.
        TopologyError: an unknown topology, or nothing was recorded yet.
    """
    newest = executables.last_abstract or (executables.last_executable.program if executables.last_executable else None)
    if newest is None:
        raise TopologyError(what="No program was recorded yet", fix="Run a step on the tpu device first.")
    return asdict(compile_for(newest, topology))


def compile_for(program: RecordedProgram, topology: str = "v5e") -> Report:
    """Compile a program for one chip of ``topology`` (``v5e``, or libtpu's own ``v5e:2x2``).

    ``hbm_peak_bytes`` is argument + output + temp - alias bytes, which XLA's allocator needs at once.

    Raises:
        PlatformError: libtpu is not installed.
        TopologyError: an unknown topology.
        CompileError: the TPU compiler refused the program; the message is its own.
        UnsupportedDtypeError: there is complex128 in it.
    """
    return report(lambda where: executables.compile_lowered(program, where), topology, len(program.nodes))


def report(compile_on: Callable[[jax.sharding.Sharding], jax.stages.Compiled], topology: str, num_nodes: int) -> Report:
    """Report on what ``compile_on`` makes for one chip of ``topology``.

    Raises:
        PlatformError: libtpu is not installed.
        TopologyError: an unknown topology.
    """
    chip = _first_chip(_SMALLEST.get(topology, topology))
    start = time.perf_counter()
    compiled = compile_on(jax.sharding.SingleDeviceSharding(chip))
    seconds = time.perf_counter() - start
    memory = executables.memory_of(compiled)
    cost = compiled.cost_analysis() or {}
    return Report(
        topology=topology, device_kind=chip.device_kind,
        hbm_peak_bytes=memory["argument_bytes"] + memory["output_bytes"] + memory["temp_bytes"] - memory["alias_bytes"],
        argument_bytes=memory["argument_bytes"], output_bytes=memory["output_bytes"], temp_bytes=memory["temp_bytes"],
        alias_bytes=memory["alias_bytes"], flops=float(np.asarray(cost.get("flops", 0.0))), compile_s=seconds,
        num_nodes=num_nodes)


@functools.cache
def _first_chip(topology: str) -> Any:
    if importlib.util.find_spec("libtpu") is None:
        raise PlatformError(
            platform="TPU compiler", why="libtpu is not installed", fix="Install it with: pip install 'torchtpu[tpu]'.")
    # Describing a topology must neither look for a metadata server nor take the lock that a chip's user holds.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        raise TopologyError(
            what=f"libtpu does not know the topology {topology!r} ({str(error).strip().splitlines()[0]})",
            fix=f"Use one of {', '.join(_SMALLEST)}, or a full name such as v5e:2x4.") from error
