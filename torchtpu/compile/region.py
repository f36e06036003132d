"""A compiled graph as one operator: one node of the recorded program, lowered by the same rules as everything else.

The operator ``torchtpu::region`` takes the name of the graph, which is a hash of what it computes, so that another process finds
the program again; its tensors; and the sizes that were left open while it was traced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from torchtpu import _C
from torchtpu.compile.results import output_values, views_of_results
from torchtpu.graph import own_inference
from torchtpu.graph.computable import attribute, is_computable, is_random
from torchtpu.graph.interpret import RECOMPUTED, Interpreter
from torchtpu.graph.rule_choice import NUM_DRAWS
from torchtpu.graph.sizes import Sizes, bindings, is_symbolic, known_symbols, shape_symbols
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower
from torchtpu.runtime import step_hooks

_library = torch.library.Library("torchtpu", "DEF")
_library.define("region(str graph, Tensor[] tensors, int[] sizes) -> Tensor[]")


class Region:
    """A functional graph of aten operators, and how to call it."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.graph = module.graph
        self.num_draws = sum(map(is_random, module.graph.nodes))
        self.given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        self.bound = bindings(self.given)

    def sizes(self, values: Sequence[int]) -> Sizes:
        """The open sizes, from their values in the order of ``bound``."""
        return Sizes(dict(zip(self.bound, values, strict=True)))

    def flatten(self, arguments: Sequence[Any]) -> tuple[list[torch.Tensor], list[int]]:
        """Arguments of a call as the operator takes them. A random generator is two tensors on the host, and moves on."""
        tensors: list[torch.Tensor] = []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                tensors.append(argument)
            elif isinstance(argument, torch.Generator):
                tensors += _state(argument)
        sizes = [arguments[i] if dim is None else arguments[i].shape[dim] for i, dim in self.bound.values()]
        return tensors, [int(size) for size in sizes]

    def unflatten(self, tensors: Sequence[jax.Array]) -> list[Any]:
        """One value a placeholder; sizes are None."""
        stream = iter(tensors)
        return [
            next(stream) if isinstance(value, torch.Tensor)
            else _words(next(stream), next(stream)) if isinstance(value, torch.Generator) else None for value in self.given]


_regions: dict[str, Region] = {}


def make(module: torch.fx.GraphModule) -> Callable[[list[Any]], list[Any]] | None:
    """The graph as a function of a list that it empties, or None if not everything in it can become one operator."""
    if not _is_region(module):
        return None
    given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    results = views_of_results(module.graph, known_symbols(given))
    _keep_constants(module)
    name = register(module)
    region = _regions[name]
    buckets = _buckets(module, region) if region.bound else None

    def call(arguments: list[Any]) -> list[Any]:
        step_hooks.tell_compiled_steps(_C)
        tensors, sizes = region.flatten(arguments)
        arguments.clear()
        made = buckets.run(tensors, sizes) if buckets else None
        if made is None:
            made = torch.ops.torchtpu.region(name, tensors, sizes)
        del tensors
        known = region.sizes(sizes)
        return [result.of(made, known.of) for result in results]

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def register(module: torch.fx.GraphModule) -> str:
    """Make a graph known as a region; its name."""
    name = _name_of(module)
    _regions.setdefault(name, Region(module))
    return name


def _buckets(module: torch.fx.GraphModule, region: Region) -> Any:
    from torchtpu.compile.buckets import Buckets  # only graphs with open sizes need it

    # A generator is for checkpointing: the numbers that are drawn depend on the sizes.
    return None if any(isinstance(value, torch.Generator) for value in region.given) else Buckets(module, region.bound)


def _state(generator: torch.Generator) -> list[torch.Tensor]:
    """Seed and offset of one draw, as the operator itself would have taken them."""
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + _DRAW)
    return [torch.tensor(seed - 2**64 if seed >= 2**63 else seed), torch.tensor(offset)]


_DRAW = 4  # how far one draw moves the offset of a generator


def _words(seed: jax.Array, offset: jax.Array) -> jax.Array:
    """What ``key_of_draw`` takes: seed and offset, high word first."""
    parts = [word.astype(np.uint64) >> shift for word in (seed, offset) for shift in (np.uint64(32), np.uint64(0))]
    return jnp.stack([(part & np.uint64(0xFFFFFFFF)).astype(np.uint32) for part in parts])


def _keep_constants(module: torch.fx.GraphModule) -> None:
    """Constants of the graph on the host, where they are read when it is hashed and when it is lowered."""
    with unset_fake_temporarily():
        for inner in module.modules():
            for node in inner.graph.find_nodes(op="get_attr") if isinstance(inner, torch.fx.GraphModule) else ():
                constant = getattr(inner, str(node.target))
                if isinstance(constant, torch.Tensor):
                    setattr(inner, str(node.target), constant.detach().cpu().contiguous())


@lower("torchtpu::region")
def torchtpu_region(ctx: RuleContext, graph: str, tensors: list[jax.Array], sizes: Sequence[int]) -> list[jax.Array]:
    """torchtpu::region(str graph, Tensor[] tensors, int[] sizes) -> Tensor[]"""
    region = _regions[graph]
    return list(Interpreter(region.graph, ctx, region.sizes(sizes)).run(region.unflatten(tensors)))


def _infer(graph: str, tensors: list[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    region = _regions[graph]
    known = region.sizes(sizes)
    return [
        torch.empty_strided(known.shape(v), known.strides(v), dtype=v.dtype, device="cpu") if isinstance(v, torch.Tensor)
        else torch.empty((), dtype=_NUMBERS[type(v)], device="cpu") for v in output_values(region.graph)]


_NUMBERS = {torch.SymInt: torch.int64, torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
own_inference.INFERENCE["torchtpu::region"] = _infer
NUM_DRAWS["torchtpu::region"] = lambda arguments: _regions[arguments[0]].num_draws


def _is_region(module: torch.fx.GraphModule) -> bool:
    """Whether all that comes in and goes out is on the device (or a number on the host), and every operator has a rule."""
    given = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    tensors = [v for v in given if isinstance(v, torch.Tensor)]
    inside = all(is_here(v) or (v.device.type == "cpu" and v.dim() == 0) for v in tensors)
    others = all(isinstance(v, torch.Tensor | torch.Generator | int) or is_symbolic(v) for v in given)
    kept = all(is_here(v) for v in output_values(module.graph) if isinstance(v, torch.Tensor))
    known = known_symbols(given)
    sized = all(shape_symbols(node.meta.get("val")) <= known for node in module.graph.nodes)
    return inside and others and kept and sized and any(map(is_here, tensors)) and is_computable(module.graph)


def is_here(value: torch.Tensor) -> bool:
    """Whether a tensor is on the device."""
    return value.device.type == "tpu"


def _name_of(module: torch.fx.GraphModule) -> str:
    """A hash of operators, arguments, shapes, strides, dtypes and constants, of the graph and of those that it calls."""
    digest = hashlib.sha256()
    _add_to(digest, module)
    return digest.hexdigest()[:32]


def _add_to(digest: Any, module: torch.fx.GraphModule) -> None:
    names: dict[Any, str] = {}
    for node in module.graph.nodes:
        names[node] = f"%{len(names)}"
        arguments = tree_map(lambda leaf: names[leaf] if isinstance(leaf, torch.fx.Node) else leaf, (node.args, node.kwargs))
        recomputed = "recomputed" if node.meta.get(RECOMPUTED) else ""
        digest.update(
            f"{node.op} {node.target if callable(node.target) else ''} {arguments} {_shown(node)} {recomputed}\n".encode())
        if node.op == "get_attr":
            value = attribute(node)
            if isinstance(value, torch.fx.GraphModule):
                _add_to(digest, value)
                continue
            with unset_fake_temporarily():
                digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    digest.update(b"end\n")


def _shown(node: torch.fx.Node) -> str:
    def one(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{value.dtype}{tuple(value.shape)}{tuple(value.stride())}"
        return "generator" if isinstance(value, torch.Generator) else str(value)

    return " ".join(map(one, tree_leaves(node.meta.get("val"))))
