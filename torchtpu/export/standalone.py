"""Runs a program that ``torchtpu.export.save`` wrote. Needs JAX, safetensors and flatbuffers; not PyTorch, and not torchtpu.

A copy of this file lies in every saved program as ``load.py``:

    from load import load
    program = load("directory")
    results = program(array, name=array)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

FORMAT = 1
MANIFEST, PROGRAM, WEIGHTS = "manifest.json", "program.jax_export", "weights.safetensors"


def load(directory: str | Path) -> Program:
    """The program in a directory that ``torchtpu.export.save`` wrote.

    Raises:
        FileNotFoundError: it does not hold one.
        ValueError: it was written in another format, or is damaged.
    """
    from safetensors.numpy import load_file

    path = Path(directory)
    with whole(path / MANIFEST):
        manifest = json.loads((path / MANIFEST).read_text())
        found = manifest["format"]
    if found != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, found {found}. Load it with the load.py that lies in it.")
    weights = {}
    with whole(path / WEIGHTS):
        stored = load_file(path / WEIGHTS)
        for entry in manifest["weights"].values():
            name = entry["stored_as"]
            weights[name] = stored[name].view(np.dtype(entry["dtype"])).reshape(entry["shape"])
    with whole(path / PROGRAM):
        exported = export.deserialize(bytearray((path / PROGRAM).read_bytes()))
    return Program(manifest, exported, weights)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[None]:
    """Name the file whose content cannot be read: the readers' own errors speak of offsets and keys."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged, or does not belong to its neighbours: {type(error).__name__}: {error}") from error


class Program:
    """A program and its weights. Results are ``jax.Array``s, nested as the PyTorch module returned them.

    Attributes:
        manifest: what manifest.json says.
        weights: by name, on the device. What the module mutates (the buffers of batch normalisation, a cache) is replaced by
            each call.
        seed: of random numbers, if the program draws any; each call takes it and counts it up.
    """

    def __init__(self, manifest: dict[str, Any], exported: export.Exported, weights: Mapping[str, np.ndarray]) -> None:
        self.manifest = manifest
        self.seed = 0
        self._run = jax.jit(exported.call)
        with jax.enable_x64(True):  # 64-bit numbers stay what they are
            self.weights = jax.device_put(dict(weights))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The results for arguments nested as those that the module was exported with.

        Raises:
            ValueError: arguments that do not fit, or a module that mutates its arguments: call ``run``.
        """
        if self.manifest["mutated_inputs"]:
            raise ValueError(f"the program writes into {', '.join(self.manifest['mutated_inputs'])}: call run(), which returns it")
        return self.run(*arguments, **keywords)[0]

    def run(self, *arguments: Any, **keywords: Any) -> tuple[Any, dict[str, jax.Array]]:
        """The results, and the new values of arguments that the module mutates, by name.

        Raises:
            ValueError: arguments that do not fit.
        """
        arrays: dict[int, Any] = {}
        _take(self.manifest["arguments"], (arguments, keywords), "arguments", arrays)
        sizes: dict[str, int] = {}
        inputs = [_checked(arrays[place], entry, self.manifest["dimensions"], sizes)
                  for place, entry in enumerate(self.manifest["inputs"])]
        with jax.enable_x64(True):
            outputs, new_weights, new_inputs = self._run(self.weights, inputs, *self._keys())
        self.weights.update(new_weights)
        return _give(self.manifest["results"], outputs), new_inputs

    def _keys(self) -> list[np.ndarray]:
        if not self.manifest["draws_random_numbers"]:
            return []
        seed, self.seed = self.seed, self.seed + 1
        return [np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)]


def _take(tree: dict[str, Any], value: Any, where: str, arrays: dict[int, Any]) -> None:
    """Collect the arrays of ``value``, which has to be nested as ``tree`` says."""
    kind = tree["kind"]
    if kind == "array":
        arrays[tree["index"]] = value
    elif kind == "constant":
        if value != tree["value"]:
            raise ValueError(f"{where}: expected {tree['value']!r}, which was fixed by the export, got {value!r}")
    elif kind == "dict":
        if not isinstance(value, Mapping) or set(value) != set(tree["keys"]):
            got = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"{where}: expected the names {tree['keys']}, got {got}")
        for key, item in zip(tree["keys"], tree["items"], strict=True):
            _take(item, value[key], f"{where}.{key}", arrays)
    else:
        if not isinstance(value, Sequence) or len(value) != len(tree["items"]):
            got = len(value) if isinstance(value, Sequence) else type(value).__name__
            raise ValueError(f"{where}: expected {len(tree['items'])} items, got {got}")
        for place, item in enumerate(tree["items"]):
            _take(item, value[place], f"{where}[{place}]", arrays)


def _checked(array: Any, entry: dict[str, Any], ranges: dict[str, dict[str, Any]], sizes: dict[str, int]) -> Any:
    """An input: numbers and lists as arrays; of arrays, only those that the program was exported for. ``sizes``: known so far."""
    dtype = np.dtype(entry["dtype"])
    if array is None:
        raise ValueError(f"{entry['name']}: expected an array of {dtype.name}, got None")  # NumPy would make it nan
    if not hasattr(array, "dtype"):
        array = np.asarray(array, dtype)
    elif not isinstance(array, np.ndarray | np.generic | jax.Array):  # another library's: a tensor of PyTorch on the CPU
        array = np.asarray(array)
    if array.dtype != dtype:
        raise ValueError(f"{entry['name']}: expected {dtype.name}, got {array.dtype.name}")
    if array.ndim != len(entry["shape"]):
        raise ValueError(f"{entry['name']}: expected the shape {entry['shape']}, got {list(array.shape)}")
    for size, expected in zip(array.shape, entry["shape"], strict=True):
        if expected in ranges:  # of sizes that are expressions, JAX checks the rest
            low, high = ranges[expected]["min"], ranges[expected]["max"]
            if size < low or (high is not None and size > high):
                raise ValueError(f"{entry['name']}: expected {expected} from {low} to {high or 'any'}, got {size}")
            expected = sizes.setdefault(expected, size)
        if isinstance(expected, int) and size != expected:
            raise ValueError(f"{entry['name']}: expected the shape {entry['shape']} with {sizes}, got {list(array.shape)}")
    return array


def _give(tree: dict[str, Any], outputs: Sequence[jax.Array]) -> Any:
    """The results, nested as ``tree`` says."""
    kind = tree["kind"]
    if kind == "array":
        return outputs[tree["index"]]
    if kind == "size":
        return int(outputs[tree["index"]])
    if kind == "constant":
        return tree["value"]
    items = [_give(item, outputs) for item in tree["items"]]
    if kind == "dict":
        return dict(zip(tree["keys"], items, strict=True))
    return tuple(items) if kind == "tuple" else items
