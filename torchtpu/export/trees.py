"""Nested arguments and results of an exported program as JSON; ``standalone.py`` reads it."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

from torch.utils import _pytree

from torchtpu.errors import ExportError

_SEQUENCES = {tuple: "tuple", list: "list"}


def tree(spec: _pytree.TreeSpec, leaves: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """``spec`` with a description in place of every leaf.

    Named tuples become tuples, and every kind of dict one that is ordered by insertion, the outputs of Hugging Face's models
    included.

    Raises:
        ExportError: a container that JSON, or a process without its class, cannot make again.
    """
    if spec.is_leaf():
        return next(leaves)
    children = [tree(child, leaves) for child in spec.children()]
    if spec.type in _SEQUENCES or _pytree.is_namedtuple_class(spec.type):
        return {"kind": _SEQUENCES.get(spec.type, "tuple"), "items": children}
    if spec.type is type(None):
        return {"kind": "constant", "value": None}
    keys = _keys(spec)
    if keys is None or not all(isinstance(key, str | int) for key in keys):
        raise ExportError(
            what=f"{spec.type.__module__}.{spec.type.__qualname__} among the arguments or results", where="",
            why="The artefact is run where this class does not exist.", fix="Use tuples, lists and dicts with str or int keys.")
    return {"kind": "dict", "keys": keys, "items": children}


def _keys(spec: _pytree.TreeSpec) -> list[Any] | None:
    if spec.type in (dict, OrderedDict):
        return list(spec.context)
    if spec.type is defaultdict:
        return list(spec.context[1])
    if issubclass(spec.type, OrderedDict) and isinstance(spec.context, list | tuple):  # transformers' ModelOutput
        return list(spec.context)
    return None


def constant(value: Any) -> dict[str, Any]:
    """The description of a leaf that is no tensor.

    Raises:
        ExportError: JSON does not hold such a value.
    """
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ExportError(
            what=f"A value of type {type(value).__name__} among the arguments or results", where="",
            why="The description of the artefact is JSON.", fix="Use tensors, numbers, text or None.")
    return {"kind": "constant", "value": value}


def leaf(kind: str, index: int) -> dict[str, Any]:
    """The description of a leaf that is array ``index``; ``kind`` array or size."""
    return {"kind": kind, "index": operator.index(index)}
