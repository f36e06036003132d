"""What single operators cost, forward and backward: eager on tpu, the same written by hand in JAX, and CPU eager.

    python -m benchmarks.ops
    python -m benchmarks.ops --only 'sort|topk' --rounds 20

A call is timed from Python until its results are there; sizes are such that it takes milliseconds, so that launching counts for
little. Forward: the result, without autograd. Backward: ``(result * weights).sum()`` and its gradients, one program on tpu, and
``value_and_grad`` under ``jit`` in JAX; it holds the forward pass. tpu and JAX take turns, times are medians, and ratios are
medians over the rounds. The last column is the ratio of the least processor time, over all threads: it is the steadier one where
other programs share the machine. Before that all three are compared: an operator whose results differ is an error, not a number.
Results of unique and nonzero have shapes that depend on values, so JAX runs these eagerly.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from benchmarks import op_jax, tables
from benchmarks.op_cases import CASES, Case

WARM_UP = 2
Call = Callable[[], Any]
SIDES = ("tpu", "jax", "cpu")
DIRECTIONS = ("forward", "backward")
SLOW = 1.5  # a ratio that deserves a look


class DifferentResultsError(Exception):
    """Two sides did not compute the same thing."""


@dataclass(frozen=True)
class Measured:
    """Milliseconds of the three sides, and tpu over JAX, in time and in processor time."""

    tpu: float
    jax: float
    cpu: float
    ratio: float
    processor_ratio: float


def main() -> None:
    """Measure every operator and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="operators whose name has a match")
    parser.add_argument("--rounds", type=int, default=5, help="times that each side is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here, too")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only.search(case.name)]
    results: dict[str, dict[str, Any]] = {}
    console, started = Console(stderr=True), time.perf_counter()
    for case in track(cases, "operators", console=console, disable=not console.is_terminal):
        results[case.name] = {"sizes": case.sizes, **_measure_case(case, arguments.rounds)}
        if not console.is_terminal:  # no bar is drawn there
            print(f"{case.name}: done after {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    if arguments.only.search("adamw"):
        results["adamw, one step"] = {"sizes": "20 of 512x512", "forward": in_turn(_adamw(), arguments.rounds)}
    if not results:
        sys.exit(f"no operator has {arguments.only.pattern!r} in its name; there are {', '.join(c.name for c in CASES)}, adamw")
    print("\n".join(_report(results)))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=1, default=vars) + "\n")


def in_turn(calls: dict[str, Call], rounds: int) -> Measured:
    """Time tpu and JAX in turn, each first as often as the other, then CPU eager, whose threads go on spinning for a while: what
    came right after it would have half of two cores. The first rounds, which compile, do not count.
    """
    def one_round(*sides: str) -> dict[str, tuple[float, float]]:
        return {side: _milliseconds(calls[side]) for side in sides}

    pairs = [one_round(*(("tpu", "jax") if i % 2 else ("jax", "tpu"))) for i in range(WARM_UP + rounds)]
    measured = [pair | one_round("cpu") for pair in pairs][WARM_UP:]
    medians = {side: statistics.median(m[side][0] for m in measured) for side in SIDES}
    least = {side: min(m[side][1] for m in measured) for side in SIDES}
    ratio = statistics.median(m["tpu"][0] / m["jax"][0] for m in measured)
    return Measured(**medians, ratio=ratio, processor_ratio=least["tpu"] / least["jax"])


def _measure_case(case: Case, rounds: int) -> dict[str, Measured]:
    inputs = case.make(torch.Generator().manual_seed(0))
    result: dict[str, Measured] = {}
    for direction in DIRECTIONS if case.gradients else DIRECTIONS[:1]:
        calls = _calls(case, inputs, direction)
        if not case.random:
            _compare(case.name, direction, calls)
        result[direction] = in_turn(calls, rounds)
    return result


def _calls(case: Case, inputs: Sequence[torch.Tensor], direction: str) -> dict[str, Call]:
    if direction == "forward":
        return {"tpu": _forward(case, [x.to("tpu") for x in inputs]), "jax": _jax_forward(case, inputs),
                "cpu": _forward(case, inputs)}
    weights = torch.randn(case.in_torch(*inputs).shape, generator=torch.Generator().manual_seed(1))
    return {"tpu": _backward(case, [x.to("tpu") for x in inputs], weights.to("tpu")), "jax": _jax_backward(case, inputs, weights),
            "cpu": _backward(case, inputs, weights)}


def _forward(case: Case, inputs: Sequence[torch.Tensor]) -> Call:
    def call() -> Any:
        with torch.no_grad():
            return case.in_torch(*inputs)

    return call


def _backward(case: Case, inputs: Sequence[torch.Tensor], weights: torch.Tensor) -> Call:
    given = [x.detach().requires_grad_(i in case.gradients) for i, x in enumerate(inputs)]
    leaves = [given[i] for i in case.gradients]

    def call() -> Any:
        loss = (case.in_torch(*given) * weights).sum()
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return call


def _jax_forward(case: Case, inputs: Sequence[torch.Tensor]) -> Call:
    arrays = [_to_jax(x) for x in inputs]
    function = case.in_jax if case.dynamic else jax.jit(case.in_jax)
    return lambda: function(*arrays)


def _jax_backward(case: Case, inputs: Sequence[torch.Tensor], weights: torch.Tensor) -> Call:
    arrays, factor = [_to_jax(x) for x in inputs], _to_jax(weights)
    differentiated = jax.value_and_grad(lambda w, *xs: (case.in_jax(*xs) * w).sum(), tuple(i + 1 for i in case.gradients))
    function = jax.jit(differentiated)

    def call() -> Any:
        loss, gradients = function(factor, *arrays)
        return loss, *gradients

    return call


def _adamw() -> dict[str, Call]:
    """A step of torch.optim.AdamW as it comes, and one over lists in JAX with its state donated."""
    generator = torch.Generator().manual_seed(0)
    values, slopes = ([torch.randn(512, 512, generator=generator) for _ in range(20)] for _ in range(2))

    def in_torch(device: str) -> Call:
        parameters = [torch.nn.Parameter(x.to(device, copy=True)) for x in values]
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.grad = slope.to(device)
        return torch.optim.AdamW(parameters).step

    zeros = [jnp.zeros((512, 512)) for _ in values]
    state = ([_to_jax(x) for x in values], zeros, [jnp.copy(z) for z in zeros], jnp.float32(0))
    gradients, step = [_to_jax(x) for x in slopes], jax.jit(op_jax.adamw, donate_argnums=0)

    def in_jax() -> Any:
        nonlocal state
        state = step(state, gradients)
        return state

    return {"tpu": in_torch("tpu"), "jax": in_jax, "cpu": in_torch("cpu")}


def _milliseconds(call: Call) -> tuple[float, float]:
    """Time until the results are there, and processor time; ``synchronize`` does not wait where nothing was recorded."""
    start, start_processor = time.perf_counter(), time.process_time()
    result = call()
    jax.block_until_ready([x for x in jax.tree.leaves(result) if isinstance(x, jax.Array)])
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) * 1e3, (time.process_time() - start_processor) * 1e3


def _compare(name: str, direction: str, calls: dict[str, Call]) -> None:
    """All sides against the CPU, by the norm of the difference; the loss, a sum that cancels, is left out."""
    first = 1 if direction == "backward" else 0
    results = {side: [_to_numpy(x) for x in _leaves(call())[first:]] for side, call in calls.items()}
    tolerance = 2e-2 if "bfloat16" in name else 2e-3
    for side in ("tpu", "jax"):
        for got, expected in zip(results[side], results["cpu"], strict=True):
            error = np.linalg.norm(got.reshape(-1) - expected.reshape(-1)) / max(np.linalg.norm(expected), 1e-30)
            if got.shape != expected.shape or not error <= tolerance:
                raise DifferentResultsError(f"{name}, {direction}: {side} is {error:.1e} away from the CPU")


def _leaves(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


def _to_numpy(x: Any) -> np.ndarray:
    return x.detach().cpu().double().numpy() if isinstance(x, torch.Tensor) else np.asarray(x.astype(jnp.float32), np.float64)


def _to_jax(x: torch.Tensor) -> jax.Array:
    """A copy, with the integers of 64 bits that PyTorch indexes with as JAX's own of 32."""
    return jnp.asarray(x.float().numpy(), jnp.bfloat16) if x.dtype == torch.bfloat16 else jnp.array(x.numpy())


def _report(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield f"CPU eager runs in {torch.get_num_threads()} threads (OMP_NUM_THREADS), XLA in as many as there are cores.\n"
    for direction in DIRECTIONS:
        found: dict[str, Measured] = {name: result[direction] for name, result in results.items() if direction in result}
        if not found:
            continue
        rows = [
            (name, results[name]["sizes"], *(f"{x:.2f}" for x in (m.tpu, m.jax, m.cpu, m.ratio, m.processor_ratio)))
            for name, m in found.items()]
        headers = (direction, "sizes", "tpu, ms", "JAX, ms", "CPU, ms", "tpu / JAX", "in processor time")
        yield tables.markdown(headers, rows)
        mean = math.exp(statistics.mean(math.log(m.ratio) for m in found.values()))
        slow = [f"{name} {m.ratio:.2f}" for name, m in found.items() if min(m.ratio, m.processor_ratio) > SLOW]
        yield f"\nGeometric mean of tpu / JAX: {mean:.2f}. Above {SLOW} in both ratios: {', '.join(slow) or 'none'}.\n"


if __name__ == "__main__":
    main()
