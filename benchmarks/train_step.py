"""A GPT-2 training step (forward, loss, backward, AdamW): eager and compiled on tpu, hand-written in JAX, and CPU eager.

    python -m benchmarks.train_step --layers 4

With ``--torchax PYTHON``, an interpreter that has torchax, transformers and the PyTorch that those work with, torchax too.
Every run is a process of its own; they take turns and ratios are medians over the rounds. Start-up overhead is
the time from before the model moves to the device until the end of step 3, less three steady steps, with JAX's client
started before the clock on both sides; *warm* is a second process with the first one's cache directory. Peak memory
is argument + output + temp - alias bytes of the step's executable, with the gradients dropped before it is flushed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jax_models import GPTShape

ROOT = Path(__file__).resolve().parents[1]
_NAMES = {
    "tpu": "tpu, eager", "compiled": "tpu, compiled", "jax": "JAX, by hand", "torchax": "torchax, under jax.jit",
    "cpu": "CPU, eager",
}


def main() -> None:
    """Run the rounds and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(GPTShape):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    parser.add_argument("--rounds", type=int, default=5, help="times that all take turns")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of one process")
    parser.add_argument("--torchax", metavar="PYTHON", help="an interpreter that has torchax: measure it too")
    arguments = parser.parse_args()
    interpreters = {"torchax": arguments.torchax}
    shape = GPTShape(*(getattr(arguments, f.name) for f in fields(GPTShape)))
    kinds = [kind for kind in _NAMES if kind != "torchax" or arguments.torchax]
    with tempfile.TemporaryDirectory() as cold_cache, tempfile.TemporaryDirectory() as steady_cache:
        cold = worker("tpu", shape, 5, cold_cache)
        warm = worker("tpu", shape, 5, cold_cache)
        rounds = [
            {kind: worker(kind, shape, arguments.steps, steady_cache, python=interpreters.get(kind)) for kind in kinds}
            for _ in range(arguments.rounds)
        ]
        memory = {kind: worker(kind, shape, 3, steady_cache, "--memory") for kind in ("tpu", "jax")}
    print(f"GPT-2: {', '.join(f'{f.name} {v}' for f, v in zip(fields(shape), astuple(shape), strict=True))}; "
          f"{arguments.rounds} rounds of {arguments.steps} steps\n")
    print(_steps_table(rounds))
    print()
    print(_other_table(rounds, cold, warm, memory))


def worker(kind: str, shape: GPTShape, steps: int, cache: str, *flags: str, python: str | None = None) -> dict[str, Any]:
    """What one process of `train_step_worker.py` measured; ``python``: in another interpreter than this."""
    numbers = [str(n) for n in (steps, *astuple(shape))]
    command = [python or sys.executable, "-m", "benchmarks.train_step_worker", kind, *numbers, *flags]
    autoload = "1" if kind in ("tpu", "compiled") else "0"
    environment = {**os.environ, "TORCHTPU_CACHE_DIR": cache, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    result = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{kind}: exit status {result.returncode}\n{result.stderr[-4000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def _steps_table(rounds: Sequence[dict[str, Any]]) -> str:
    def ratio(kind: str, other: str) -> str:
        return f"{statistics.median(r[kind]['ms'] / r[other]['ms'] for r in rounds):.2f}"

    def median(kind: str) -> str:
        return f"{statistics.median(r[kind]['ms'] for r in rounds):.1f}"

    rows = [
        (_NAMES[kind], median(kind), f"{min(r[kind]['min_ms'] for r in rounds):.1f}", ratio(kind, "jax"), ratio(kind, "cpu"))
        for kind in rounds[0]
    ]
    return tables.markdown(("training step", "median, ms", "least, ms", "/ JAX", "/ CPU"), rows)


def _other_table(
    rounds: Sequence[dict[str, Any]], cold: dict[str, Any], warm: dict[str, Any], memory: dict[str, dict[str, Any]]
) -> str:
    jax_cold = statistics.median(r["jax"]["startup_s"] for r in rounds)
    peaks = {kind: r["peak_bytes"] / 2**20 for kind, r in memory.items()}

    def row(title: str, mine: float, theirs: float) -> tuple[str, str, str, str]:
        return title, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}"

    rows = [
        row("start-up overhead, cold, s", cold["startup_s"], jax_cold),
        row("start-up overhead, warm, s (JAX: cold)", warm["startup_s"], jax_cold),
        row("peak memory, MiB", peaks["tpu"], peaks["jax"]),
        ("programs compiled, cold", str(cold["compiles"]), "1", ""),
        ("programs compiled, warm", str(warm["compiles"]), "", ""),
        ("fallbacks", str(sum(cold["fallbacks"].values())), "", ""),
    ]
    return tables.markdown(("", "tpu, eager", "JAX, by hand", "ratio"), rows)


if __name__ == "__main__":
    main()
