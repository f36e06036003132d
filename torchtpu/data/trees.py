"""Batches taken apart into tensors and arrays, and put together again with others in their places."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchtpu.data.arrays import is_array

Build = Callable[[Iterator[Any]], Any]
"""Makes the batch from what stands in the places of its leaves, in their order."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A tensor, an array, or an object with a ``to`` of its own; ``path`` is such as ``inputs.ids`` or ``0``."""

    path: str
    value: Any


def flatten(value: Any, path: str = "") -> tuple[list[Leaf], Build | None]:
    """The leaves of a batch, and how to build it anew; None for what has no leaves, which stays the object that it is.

    Containers keep their types: dict, list, tuple, named tuples, dataclasses, mappings of any class (``BatchEncoding``), and what
    is registered with ``torch.utils._pytree``.
    """
    if isinstance(value, torch.Tensor) or is_array(value):
        return [Leaf(path, value)], next
    taken = _take_apart(value)
    if taken is None:
        return ([Leaf(path, value)], next) if moves_itself(value) else ([], None)
    names, children, put_together = taken
    leaves: list[Leaf] = []
    builds: list[Build] = []
    for name, child in zip(names, children, strict=True):
        found, build = flatten(child, f"{path}.{name}" if path else name)
        leaves += found
        builds.append(build or _constantly(child))
    if not leaves:
        return [], None
    return leaves, lambda items: put_together([build(items) for build in builds])


def _constantly(value: Any) -> Build:
    return lambda _: value


def moves_itself(value: Any) -> bool:
    """Objects that libraries make of tensors: packed sequences, graphs."""
    return callable(getattr(value, "to", None)) and not isinstance(value, type)


def _take_apart(value: Any) -> tuple[list[str], list[Any], Callable[[list[Any]], Any]] | None:
    """Names, children, and what puts these together; None for what is no container."""
    if isinstance(value, Mapping):
        keys = list(value)
        return [str(key) for key in keys], [value[key] for key in keys], lambda children: _mapping_like(value, keys, children)
    if isinstance(value, tuple) and moves_itself(value):
        return None
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is not None:
        children, context = node.flatten_fn(value)
        names = getattr(value, "_fields", None) or range(len(children))
        return [str(name) for name in names], list(children), lambda children: node.unflatten_fn(children, context)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return names, [getattr(value, name) for name in names], lambda children: _dataclass_like(value, names, children)
    return None


def _mapping_like(value: Mapping[Any, Any], keys: list[Any], children: list[Any]) -> Any:
    if isinstance(value, MutableMapping):
        made = copy.copy(value)  # with what else the object holds, such as the encodings of a tokenizer
        for key, child in zip(keys, children, strict=True):
            made[key] = child
        return made
    return type(value)(dict(zip(keys, children, strict=True)))  # type: ignore[call-arg]


def _dataclass_like(value: Any, names: list[str], children: list[Any]) -> Any:
    made = copy.copy(value)
    for name, child in zip(names, children, strict=True):
        object.__setattr__(made, name, child)  # frozen ones too
    return made
