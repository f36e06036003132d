"""Compiling an exported program for a named TPU, without a chip: the memory and the work that it will need."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export
from torch.export import ExportedProgram

from torchtpu.errors import ArtifactError, CompileError, TopologyError, UnsupportedDtypeError
from torchtpu.estimate.ahead_of_time import Report, report
from torchtpu.export import standalone
from torchtpu.export.lowering import lower


def compile_for(
    program: ExportedProgram | str | os.PathLike[str], topology: str = "v5e", *, sizes: Mapping[str, int] | None = None
) -> Report:
    """Compile a program for one chip of ``topology`` (``v5e``, or libtpu's own ``v5e:2x2``).

    ``program`` is one of ``torch.export``, whose weights may be fake, or the directory of a saved one. ``sizes`` gives the open
    dimensions by the names that the manifest has, such as ``tokens_dim0``. In the report, ``num_nodes`` counts operations of
    StableHLO, and everything is of a call that donates nothing.

    Raises:
        PlatformError: libtpu is not installed.
        TopologyError: an unknown topology, or an open dimension without a size.
        ArtifactError: the directory holds no program, or one that was not exported for TPUs.
        CompileError: the TPU compiler refused the program; the message is its own.
        ExportError, UnsupportedDtypeError: as ``save``; complex128 is refused as well.
    """
    exported, ranges = _exported(program)
    text = exported.mlir_module()
    if "complex<f64>" in text:
        raise UnsupportedDtypeError(
            op="torchtpu.export.compile_for", expected="complex64 on a TPU", got="complex128",
            why="Its compiler has no complex numbers of two float64.", fix="Use .to(torch.complex64).")
    shapes = _Shapes(ranges, sizes or {})

    def compile_on(where: jax.sharding.Sharding) -> jax.stages.Compiled:
        avals = [jax.ShapeDtypeStruct(shapes.closed(a.shape), a.dtype, sharding=where) for a in exported.in_avals]
        arguments, keywords = jax.tree.unflatten(exported.in_tree, avals)
        with jax.enable_x64(True):
            stage = jax.jit(exported.call, keep_unused=True, out_shardings=where).trace(*arguments, **keywords).lower()
            try:
                return stage.compile()
            except jax.errors.JaxRuntimeError as error:
                raise CompileError(num_nodes=text.count(" = "), why=str(error).strip().split("\n")[0]) from error

    return report(compile_on, topology, text.count(" = "))


def _exported(program: ExportedProgram | str | os.PathLike[str]) -> tuple[export.Exported, dict[str, Any]]:
    if isinstance(program, ExportedProgram):
        portable = lower(program, ("tpu",))
        return portable.exported, portable.manifest["dimensions"]
    path = Path(program)
    try:
        with standalone.whole(path / standalone.MANIFEST):
            manifest = json.loads((path / standalone.MANIFEST).read_text())
            dimensions = manifest["dimensions"]
        with standalone.whole(path / standalone.PROGRAM):
            exported = export.deserialize(bytearray((path / standalone.PROGRAM).read_bytes()))
    except FileNotFoundError as error:
        raise ArtifactError(
            path=path, expected="a directory that torchtpu.export.save wrote", found=f"no {Path(error.filename).name}",
            fix="Give its path, or an ExportedProgram.") from error
    except ValueError as error:
        raise ArtifactError(
            path=path, expected="a program that torchtpu.export.save wrote", found="a damaged one", fix=f"{error}") from error
    if "tpu" not in exported.platforms:
        raise ArtifactError(
            path=path, expected="a program for tpu", found=f"one for {', '.join(exported.platforms)}",
            fix="Save it with platforms=('tpu',).")
    return exported, dimensions


class _Shapes:
    """Shapes with every open dimension filled in."""

    def __init__(self, ranges: Mapping[str, Mapping[str, int | None]], sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        if set(sizes) != set(ranges):
            raise TopologyError(
                what=f"Compiling takes a size for each of the open dimensions {sorted(ranges)}, got {sorted(sizes)}",
                fix="Give them with sizes={name: size}.")
        for name, size in sizes.items():
            low, high = ranges[name]["min"], ranges[name]["max"]
            if (low is not None and size < low) or (high is not None and size > high):
                raise TopologyError(what=f"{name}={size}: expected a size from {low} to {high or 'any'}", fix="Change sizes=.")

    def closed(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        """``shape`` in numbers."""
        return tuple(n if isinstance(n, int) else int(n._evaluate(self._sizes)) for n in shape)
