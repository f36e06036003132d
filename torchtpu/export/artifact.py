"""The directory that holds an exported program."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch.export import ExportedProgram

from torchtpu._version import __version__
from torchtpu.errors import ArtifactError
from torchtpu.export import standalone, weights
from torchtpu.export.lowering import PLATFORMS, PortableProgram, lower

_LOADER = "load.py"


def save(
    program: ExportedProgram, path: str | os.PathLike[str], *, platforms: Sequence[str] = PLATFORMS, overwrite: bool = False
) -> Path:
    """Write a program of ``torch.export``, traced on any device, as a directory that JAX runs without PyTorch.

    It holds the StableHLO program for all ``platforms``, the weights (tied ones once), ``manifest.json`` and a loader. Sizes that
    ``torch.export.Dim`` left open stay open. Results have the dtypes and shapes of PyTorch; strides are gone.

    Differs from the module in PyTorch: checks of values raise nothing; random numbers come from a seed of the call.

    Returns:
        The directory.

    Raises:
        ExportError: what has no place in such a program: an operator without a rule, a size that depends on values.
        UnsupportedDtypeError: a tensor whose dtype JAX does not have.
        ArtifactError: the path is taken, by anything but an older program if ``overwrite`` is set.
        MissingPackageError: safetensors or flatbuffers is not installed (``pip install 'torchtpu[export]'``).
    """
    target = Path(path).absolute()
    weights.require_packages()
    _check_free(target, overwrite)
    portable = lower(program, platforms)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed: whoever finds the directory finds all of it.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
        new, old = Path(beside, "new"), Path(beside, "old")
        new.mkdir()
        _write(portable, new)
        _check_free(target, overwrite)
        if os.path.lexists(target):
            target.rename(old)
        new.rename(target)
    return target


def _write(portable: PortableProgram, directory: Path) -> None:
    (directory / standalone.PROGRAM).write_bytes(portable.exported.serialize())
    weights.write(portable.weights, str(directory / standalone.WEIGHTS))
    versions = {"torchtpu": __version__, **{name: importlib.metadata.version(name) for name in ("torch", "jax", "jaxlib")}}
    manifest = {"format": standalone.FORMAT, "versions": versions, **portable.manifest}
    (directory / standalone.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.copyfile(standalone.__file__, directory / _LOADER)


def _check_free(target: Path, overwrite: bool) -> None:
    if not os.path.lexists(target):  # a link to nowhere is something, too
        return
    if not overwrite:
        raise ArtifactError(path=target, expected="a path that does not exist", found="something there", fix="Set overwrite=True.")
    if not (target / standalone.MANIFEST).is_file():
        raise ArtifactError(
            path=target, expected="an exported program to overwrite", found="something else", fix="Choose another path.")
