"""One call that is made on both sides, and each side's copy of its arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """A call, its arguments on the CPU, and what is to be compared."""

    label: str
    variant: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    process: Callable[[Any], Any] = lambda result: result  # of a result that is not unique, what is
    gradients: bool = False
    second_order: bool = False
    fresh: bool = False  # the values are those of memory that nobody has written
    out: str = ""  # how the out= arguments are made: same, strided or empty
    names_no_device: bool = False  # so the device is made the default one
    host_rest: bool = False  # arguments after the first have to be on the CPU, whatever the device

    def __str__(self) -> str:
        arguments = [brief(a) for a in self.args] + [f"{name}={brief(a)}" for name, a in self.kwargs.items()]
        return f"{self.label} ({', '.join(arguments)})"


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors of nested results or arguments."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it has sizes, strides and a storage, and nothing more."""
    return tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized


def brief(tree: Any, length: int = 80) -> str:
    """Arguments in a few words: ``float32[2, 3]`` for a tensor."""
    if isinstance(tree, torch.Tensor):
        name = str(tree.dtype).removeprefix("torch.")
        if not is_plain(tree):
            return f"{name}{list(tree.shape)} {str(tree.layout).removeprefix('torch.')}"
        return f"{name}{list(tree.shape)}" + ("" if tree.is_contiguous() else f" strides {list(tree.stride())}")
    if isinstance(tree, list | tuple):
        text = "[" + ", ".join(brief(item, length) for item in tree) + "]"
    elif isinstance(tree, torch.nn.Module):
        text = type(tree).__name__
    else:
        text = repr(tree)
    return text if len(text) <= length else text[:length] + "..."


class Side:
    """A copy of a case's arguments on one device: strides, shared memory and arguments that are given twice stay as they are."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.device = device
        self.arguments: list[torch.Tensor] = []  # each tensor once, those of modules too
        self._gradients = case.gradients
        self._copies: dict[int, Any] = {}
        self._memory: dict[Any, torch.Tensor] = {}
        args = (tree_map(self._copy, case.args[0]), *case.args[1:]) if case.host_rest else tree_map(self._copy, case.args)
        if case.variant == "inplace" and case.gradients:  # a leaf that has a gradient cannot be written
            args = (tree_map(self._clone, args[0]), *args[1:])
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = tree_map(self._copy, case.kwargs)
        self.leaves = [t for t in self.arguments if t.requires_grad and t.is_leaf]
        self.versions = [t._version for t in self.arguments]

    def memory(self) -> list[torch.Tensor]:
        """What is in the storages of the arguments."""
        return [flat.detach().cpu() for flat in self._memory.values()]

    def _copy(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor | torch.nn.Module | torch.Generator):
            if id(leaf) not in self._copies:
                self._copies[id(leaf)] = self._made(leaf)
            return self._copies[id(leaf)]
        if isinstance(leaf, torch.device) and leaf == CPU:
            return self.device
        return str(self.device) if isinstance(leaf, str) and leaf == "cpu" else leaf

    def _made(self, leaf: torch.Tensor | torch.nn.Module | torch.Generator) -> Any:
        if isinstance(leaf, torch.Generator):
            return torch.Generator(self.device).manual_seed(leaf.initial_seed())
        if isinstance(leaf, torch.nn.Module):
            module = copy.deepcopy(leaf).to(self.device)
            state = [*module.parameters(), *module.buffers()]
            self.arguments += state
            self._memory |= {("state", number): t for number, t in enumerate(state, len(self._memory))}
            return module
        made = self._strided(leaf) if is_plain(leaf) else leaf.detach().clone().to(self.device)
        made.requires_grad_(leaf.requires_grad and self._gradients)
        if leaf.grad is not None:
            made.grad = self._copy(leaf.grad)
        self.arguments.append(made)
        return made

    def _strided(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of a copy of its whole storage."""
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor.dtype)
        if key not in self._memory:
            self._memory[key] = torch.empty(0, dtype=tensor.dtype).set_(storage).clone().to(self.device)
        view = self._memory[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()
        view = view.conj() if tensor.is_conj() else view
        return torch._neg_view(view) if tensor.is_neg() else view

    def _clone(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.requires_grad:
            return leaf
        self.arguments.append(leaf.clone())
        self._memory["clone", len(self._memory)] = self.arguments[-1]
        return self.arguments[-1]
