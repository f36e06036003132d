"""What AOTAutograd made of a graph, in the cache of compiled programs: another process takes it from there and traces nothing.

PyTorch has such a cache for Inductor. Its keys, guards and checks serve here as they are, and so does what it stores beside the
graphs; only where entries lie is ours, so that they are checked, bounded, listed and packed like programs. Dynamo's own work is not
kept: its guards are about live objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from functorch.compile import make_boxed_func
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache, BypassAOTAutogradCache, should_bundle_autograd_cache
from torch._guards import detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx._graph_pickler import GraphPickler, Options
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torchtpu.compile import parts, region
from torchtpu.runtime import disk_cache, installation
from torchtpu.runtime.user_code import user_line

_NAMESPACES = ("aten", "prims", "prim", "torchtpu")
"""Of operators whose gradients are PyTorch's or ours, so that its version tells which."""


class KeptGraph(OutputCode):
    """A compiled graph: one operator if all of it has rules and is on the device, else several, and what is between them.

    It is kept if it is one: of the others the user is told on which line they are cut, and lines are another process's own.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__()
        self._boxed_call = True  # on the object, whose dictionary PyTorch's wrappers copy
        # Now, because making it changes the graph.
        self._pickled = _pickled(module) if should_bundle_autograd_cache() else ValueError("there is no cache")
        self._call: Callable[[list[Any]], Any] | None = region.make(module)
        if self._call is None:
            self._pickled = ValueError("it is in several parts")
            self._call = make_boxed_func(parts.make(module))

    def __call__(self, inputs: Sequence[Any]) -> Any:
        assert self._call is not None and isinstance(inputs, list)
        return self._call(inputs)

    def prepare_for_serialization(self) -> None:
        """Of a copy that is about to be pickled.

        Raises:
            BypassAOTAutogradCache: something in the graph cannot be; PyTorch goes on without an entry.
        """
        if isinstance(self._pickled, Exception):
            raise BypassAOTAutogradCache(f"the graph cannot be kept: {self._pickled}")
        self._call = None

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Of one that was unpickled: PyTorch calls it once there are inputs, whose open sizes the graph takes part in."""
        fake_mode = detect_fake_mode(example_inputs)
        assert fake_mode is not None and isinstance(self._pickled, bytes)
        module = GraphPickler.loads(self._pickled, fake_mode)
        assert isinstance(module, torch.fx.GraphModule)
        module.recompile()
        self._call = region.make(module)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is none."""


def _pickled(module: torch.fx.GraphModule) -> bytes | Exception:
    """The graph, or why it cannot be stored: whatever its objects raise when they are pickled."""
    try:
        with unset_fake_temporarily():  # constants are read
            return GraphPickler.dumps(module, Options(ops_filter=None))
    except Exception as error:
        return error


def can_be_kept(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether PyTorch's key tells all that the result depends on.

    It does not where inputs share memory, which goes into the graph as their places in it; of a subclass it has the fields and not
    what operators do with them; and of an operator that a user defines it has only the name.
    """
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if any(map(is_traceable_wrapper_subclass, tensors)) or len({x.untyped_storage()._cdata for x in tensors}) < len(tensors):
        return False
    inside = (inner for inner in module.modules() if isinstance(inner, torch.fx.GraphModule))
    return all(_namespace(node.target) in (*_NAMESPACES, None) for inner in inside for node in inner.graph.nodes)


def _namespace(target: Any) -> str | None:
    """Of an operator, with or without its overload; None for whatever else a node may call."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    return target._qualified_op_name.split("::")[0] if isinstance(target, torch._ops.OpOverloadPacket) else None


_patching = threading.RLock()


@contextlib.contextmanager
def keeping(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Iterator[None]:
    """While AOTAutograd runs in it, it looks for its results in our cache, and puts them there."""
    disk = disk_cache.of_process()
    if disk is None or not can_be_kept(module, inputs):
        with torch._functorch.config.patch(enable_autograd_cache=False):
            yield
        return
    # Backward graphs are made at once, because an entry has both.
    settings = {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True}
    entries = _Entries(disk, time.perf_counter())
    functions: dict[str, Any] = {
        "iterate_over_candidates": _for_this_thread(entries.iterate_over_candidates, AOTAutogradCache.iterate_over_candidates),
        "_write_to_local_cache": _for_this_thread(entries.write_to_local_cache, AOTAutogradCache._write_to_local_cache)}
    with _patching, torch._functorch.config.patch(settings), mock.patch.multiple(AOTAutogradCache, **functions):
        yield


class _Entries:
    """Our cache in the place of PyTorch's folder."""

    def __init__(self, disk: disk_cache.DiskCache, start: float) -> None:
        self._disk = disk
        self._start = start

    def iterate_over_candidates(self, local: bool, remote_cache: Any, key: str) -> Iterator[tuple[Any, bytes, bool]]:
        """The one entry of a key, if there is any."""
        found = self._disk.get(_key(key))
        if found is None:
            return
        try:
            entry = pickle.loads(found[1])
        except Exception as error:  # another build of PyTorch, under the same version, may raise anything
            warnings.warn(f"a cached graph could not be loaded and is traced again: {error}", disk_cache.CacheWarning, stacklevel=2)
            return
        yield entry, found[1], True

    def write_to_local_cache(self, key: str, content: bytes) -> None:
        """Store an entry. All of the header is for people: `torchtpu cache` shows it."""
        header = {
            "reason": "torch.compile", "compile_s": round(time.perf_counter() - self._start, 3), "line": user_line(),
            "installation": installation.facts(),
        }
        self._disk.put(_key(key), header, content)


def _for_this_thread(ours: Callable[..., Any], theirs: Callable[..., Any]) -> staticmethod:
    """Others may compile for other devices meanwhile."""
    thread = threading.get_ident()
    return staticmethod(lambda *arguments: (ours if threading.get_ident() == thread else theirs)(*arguments))


def _key(key: str) -> str:
    """PyTorch's, and what a graph depends on beside it: which operators are decomposed, and how graphs are made."""
    return hashlib.sha256(f"graph {json.dumps(installation.facts(), sort_keys=True)} {key}".encode()).hexdigest()
