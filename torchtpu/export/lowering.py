"""From a ``torch.export.ExportedProgram`` to a ``jax.export.Exported``, through the one table of rules.

The program becomes ``function(weights, inputs)``, or ``function(weights, inputs, key)`` if it draws random numbers: ``weights`` is
a dict by name, in which tied weights are one; ``inputs`` a list of the tensors among the user's arguments. It returns the list of
tensors (and open sizes) among the results, and two dicts: the new values of weights and of inputs that the module mutates.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import export
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, SymIntArgument, TensorArgument

from torchtpu import dtypes
from torchtpu.errors import ExportError, TorchTPUError
from torchtpu.export import trees
from torchtpu.export.sizes import OpenSizes, shown
from torchtpu.export.weights import Weights
from torchtpu.graph.computable import is_random, obstacle
from torchtpu.graph.interpret import Interpreter
from torchtpu.graph.overloads import key_of
from torchtpu.graph.resolve import matmul_precision
from torchtpu.rules import find
from torchtpu.rules.context import RuleContext
from torchtpu.runtime import platform

PLATFORMS = ("cpu", "cuda", "tpu")
# Checks that PyTorch writes into the graph. What they say of sizes is said by the ranges of dimensions; a program that was
# compiled ahead cannot raise for values.
_CHECKS = {
    "aten::_assert_async", "aten::_assert_async.msg", "aten::_assert_scalar", "aten::_assert_tensor_metadata",
    "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
}
_WEIGHTS = {InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR}
_NEW_WEIGHTS = {OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION}
_RESULTS = {OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT}
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class PortableProgram:
    """An exported program, its weights by name (tied ones once), and what the manifest says of it."""

    exported: export.Exported
    weights: dict[str, torch.Tensor]
    manifest: dict[str, Any]


def lower(program: ExportedProgram, platforms: Sequence[str] = PLATFORMS) -> PortableProgram:
    """Lower a program for all ``platforms`` at once. Values of weights are not looked at: they may be fake.

    Raises:
        ExportError: an operator without a rule, a size that depends on values, arguments that JSON cannot describe, what is no
            ExportedProgram, or platforms that are none.
        UnsupportedDtypeError: a tensor whose dtype JAX does not have.
    """
    if not isinstance(program, ExportedProgram):
        raise ExportError(
            what=f"An object of type {type(program).__name__}", where="", why="Only an ExportedProgram says what is computed.",
            fix="Give torch.export.export(module, arguments).")
    if isinstance(platforms, str) or not platforms or not set(platforms) <= set(PLATFORMS):
        raise ExportError(
            what=f"A program for platforms={platforms!r}", where="", why=f"A list of some of {PLATFORMS} was expected.",
            fix="Leave platforms out for all of them.")
    with warnings.catch_warnings():
        # JAX starts a platform to lower for, although nothing runs on it; that it is not a chip is no news to somebody who exports.
        warnings.simplefilter("ignore", platform.EmulationWarning)
        # PyTorch's own copying of tree specs trips over PyTorch's own deprecation.
        warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)`", category=FutureWarning)
        platform.start()
        decomposed = program.run_decompositions(_decompositions())
    graph = decomposed.graph
    _drop_checks(graph)
    _refuse_unknown(graph)
    signature = _Signature(decomposed)
    function = _function(graph, signature)
    with jax.enable_x64(True):
        try:
            exported = export.export(jax.jit(function, keep_unused=True), platforms=tuple(platforms))(*signature.avals())
        except TorchTPUError:
            raise
        except (ValueError, NotImplementedError) as error:  # a lowering that is missing, or not guaranteed to stay
            raise ExportError(
                what=f"The program for {', '.join(platforms)}", where="", why=f"{type(error).__name__}: {_first_line(error)}.",
                fix="If one platform is the reason, export for the others with platforms=.") from error
    return PortableProgram(exported, signature.weights.values, signature.manifest(exported))


def _decompositions() -> Any:
    """PyTorch's own, of operators without a rule."""
    table = torch.export.default_decompositions()
    for op in list(table):
        if isinstance(op, torch._ops.OpOverload) and find(key_of(op)) is not None:
            del table[op]
    return table


def _drop_checks(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and key_of(node.target) in _CHECKS:
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _refuse_unknown(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymFloat | torch.SymBool):
            raise ExportError(
                what=f"{_named(node)}, a number that follows from an open size,", where=_where(node),
                why="Of open sizes, whole numbers only are known when a program is compiled.",
                fix="Compute it with tensors, or give that dimension a fixed size.")
        why = None if isinstance(value, torch.SymInt) else obstacle(node)
        if why is not None:
            raise ExportError(
                what=_named(node), where=_where(node), why=f"It cannot be part of a program: {why}.",
                fix="Leave this part out of the exported module, or write it with other operators.")


def _named(node: torch.fx.Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return key_of(node.target)
    return getattr(node.target, "__name__", str(node.target))


def _where(node: torch.fx.Node) -> str:
    """The innermost line outside of PyTorch that made a node, as part of a message."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    inside = torch.__path__[0]
    lines = [f"{file}:{line}" for file, line in frames if not file.startswith((inside, "<"))]
    return f" at {lines[-1]}" if lines else ""


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0].rstrip(".")


class _ExportInterpreter(Interpreter):
    """Names the operator and the user's line when a rule cannot be traced, as with some open sizes."""

    def _call(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
        try:
            return super()._call(node, values)
        except TorchTPUError:
            raise
        except Exception as error:  # whatever a rule raises: the first thing to know is where
            raise ExportError(
                what=_named(node), where=_where(node), why=f"{type(error).__name__}: {_first_line(error)}.",
                fix="If it is an open size that it cannot take, give that dimension a fixed size.") from error


class _Signature:
    """What goes in and comes out, in the order of the graph."""

    def __init__(self, program: ExportedProgram) -> None:
        signature = program.graph_signature
        placeholders = program.graph.find_nodes(op="placeholder")
        self.program = program
        self.weights = Weights(program)
        self.placeholders = list(zip(placeholders, signature.input_specs, strict=True))
        self.inputs = [
            (node, spec) for node, spec in self.placeholders
            if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)]
        self.sizes = OpenSizes(((n.name, n.meta["val"]) for n, _ in self.inputs), program.range_constraints)
        self.outputs = list(signature.output_specs)
        self.num_draws = sum(map(is_random, program.graph.nodes))
        self._refuse_others()

    def _refuse_others(self) -> None:
        for node, spec in self.placeholders:
            known = spec.kind in _WEIGHTS or (
                spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument | ConstantArgument))
            if not known:
                raise ExportError(
                    what=f"Input {node.name} ({spec.kind.name.lower()}, {type(spec.arg).__name__})", where="",
                    why="A portable program takes tensors, and numbers that are fixed.",
                    fix="Pass a tensor, or fix this argument when you call torch.export.export.")
        for spec in self.outputs:
            if spec.kind not in _RESULTS | _NEW_WEIGHTS | {OutputKind.USER_INPUT_MUTATION}:
                raise ExportError(
                    what=f"Output {spec.arg.name} ({spec.kind.name.lower()})", where="",
                    why="A portable program returns results, and new values of what it mutates.",
                    fix="Export the module without it.")
        self.weights.refuse_tied({spec.target for spec in self.outputs if spec.kind in _NEW_WEIGHTS})

    def avals(self) -> tuple[Any, ...]:
        """Shapes and dtypes of the function's arguments."""
        weights = {
            name: jax.ShapeDtypeStruct(tuple(value.shape), dtypes.to_numpy(value.dtype))
            for name, value in self.weights.values.items()}
        inputs = [self.sizes.aval(node.meta["val"], dtypes.to_numpy(node.meta["val"].dtype)) for node, _ in self.inputs]
        return (weights, inputs, *([jax.ShapeDtypeStruct((2,), np.uint32)] if self.num_draws else []))

    def arguments(self, weights: dict[str, jax.Array], inputs: Sequence[jax.Array]) -> list[Any]:
        """One value a placeholder."""
        given = dict(zip((node for node, _ in self.inputs), inputs, strict=True))

        def one(node: torch.fx.Node, spec: InputSpec) -> Any:
            if spec.kind in _WEIGHTS:
                return weights[self.weights.stored_as[str(spec.target)]]
            return spec.arg.value if isinstance(spec.arg, ConstantArgument) else given[node]

        return [one(node, spec) for node, spec in self.placeholders]

    def results(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """What the graph returned: results, new weights, new inputs."""
        outputs: list[Any] = []
        new_weights, new_inputs = {}, {}
        for spec, value in zip(self.outputs, values, strict=True):
            if spec.kind in _NEW_WEIGHTS:
                new_weights[self.weights.stored_as[str(spec.target)]] = value
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                new_inputs[spec.target] = value
            elif not isinstance(spec.arg, ConstantArgument):
                outputs.append(jnp.asarray(value, np.int64) if isinstance(spec.arg, SymIntArgument) else value)
        return outputs, new_weights, new_inputs

    def manifest(self, exported: export.Exported) -> dict[str, Any]:
        """Names, dtypes, shapes and nesting, as JSON."""
        (_, inputs, *_), _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
        outputs, new_weights, new_inputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
        ranges = {name: {"min": low, "max": high} for name, (low, high) in self.sizes.ranges.items()}
        spec = self.program.call_spec
        assert spec.in_spec is not None and spec.out_spec is not None
        return {
            "platforms": list(exported.platforms),
            "inputs": [_described(a, node.name) for a, (node, _) in zip(inputs, self.inputs, strict=True)],
            "arguments": trees.tree(spec.in_spec, iter(self._argument_leaves())),
            "outputs": [_described(a) for a in outputs],
            "results": trees.tree(spec.out_spec, iter(self._result_leaves())),
            "dimensions": ranges,
            "weights": self.weights.described(),
            "mutated_weights": sorted(new_weights),
            "mutated_inputs": sorted(new_inputs),
            "draws_random_numbers": bool(self.num_draws),
        }

    def _argument_leaves(self) -> list[dict[str, Any]]:
        place = {node: index for index, (node, _) in enumerate(self.inputs)}
        return [
            trees.leaf("array", place[node]) if node in place else trees.constant(spec.arg.value)
            for node, spec in self.placeholders if spec.kind is InputKind.USER_INPUT]

    def _result_leaves(self) -> list[dict[str, Any]]:
        leaves: list[dict[str, Any]] = []
        index = 0
        for spec in self.outputs:
            if spec.kind not in _RESULTS:
                continue
            if isinstance(spec.arg, ConstantArgument):
                leaves.append(trees.constant(spec.arg.value))
                continue
            leaves.append(trees.leaf("size" if isinstance(spec.arg, SymIntArgument) else "array", index))
            index += 1
        return leaves


def _described(aval: Any, name: str | None = None) -> dict[str, Any]:
    return {**({"name": name} if name else {}), "dtype": aval.dtype.name, "shape": shown(aval.shape)}


def _function(graph: torch.fx.Graph, signature: _Signature) -> Callable[..., Any]:
    def program(weights: dict[str, jax.Array], inputs: list[jax.Array], *keys: jax.Array) -> Any:
        context = RuleContext("torch::export", (), np.dtype(np.float32), matmul_precision(), _draws(signature.num_draws, *keys))
        run = _ExportInterpreter(graph, context, signature.sizes)
        return signature.results(run.run(signature.arguments(weights, inputs)))

    return program


def _draws(num_draws: int, *keys: jax.Array) -> tuple[Callable[[], jax.Array], ...]:
    """One JAX key a draw, from the key of the call."""
    if not keys:
        return ()
    base = jax.random.wrap_key_data(keys[0], impl="threefry2x32")
    return tuple(functools.partial(jax.random.fold_in, base, index) for index in range(num_draws))
