"""Start-up overhead of GPT-2 training by depth: eager and compiled on tpu, cold and warm, beside JAX; and where it goes.

    python -m benchmarks.startup

Overhead is what `train_step.py` measures: the time to the end of step 3, less three steady steps. *Warm* is a second process with
the first one's cache directory. Runs take turns, and figures are medians; parts are those of the median run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import Any

from benchmarks import tables
from benchmarks.jax_models import GPTShape
from benchmarks.train_step import worker

PARTS = {"Dynamo": "Dynamo and AOTAutograd", "trace": "JAX tracing", "lower": "to StableHLO", "XLA": "XLA"}
Runs = dict[str, list[dict[str, Any]]]


def main() -> None:
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[4, 12, 48], help="numbers of layers")
    parser.add_argument("--rounds", type=int, default=3, help="times that all take turns")
    parser.add_argument("--width", type=int, default=256)
    arguments = parser.parse_args()
    measured = {depth: _runs(GPTShape(layers=depth, width=arguments.width), arguments.rounds) for depth in arguments.depths}
    print(tables.markdown(
        ("start-up overhead, s", *(f"{depth} layers" for depth in measured), *(f"/ JAX at {depth}" for depth in measured)),
        [(name, *(f"{_overhead(runs[name]):.2f}" for runs in measured.values()),
          *(f"{_overhead(runs[name]) / _overhead(runs['JAX, by hand']):.2f}" for runs in measured.values()))
         for name in next(iter(measured.values()))]))
    print()
    deepest = measured[arguments.depths[-1]]
    print(tables.markdown((f"of it, at {arguments.depths[-1]} layers, s", *PARTS.values(), "the rest"), [
        (name, *_parts(runs)) for name, runs in deepest.items()]))


def _runs(shape: GPTShape, rounds: int) -> Runs:
    runs: Runs = {}
    for _ in range(rounds):
        for kind, name in (("tpu", "tpu, eager"), ("compiled", "tpu, compiled")):
            with tempfile.TemporaryDirectory() as cache:
                for when in ("cold", "warm"):
                    runs.setdefault(f"{name}, {when}", []).append(worker(kind, shape, 5, cache))
        with tempfile.TemporaryDirectory() as cache:
            runs.setdefault("JAX, by hand", []).append(worker("jax", shape, 5, cache))
    return runs


def _overhead(runs: list[dict[str, Any]]) -> float:
    return statistics.median(run["startup_s"] for run in runs)


def _parts(runs: list[dict[str, Any]]) -> list[str]:
    run = sorted(runs, key=lambda run: run["startup_s"])[len(runs) // 2]
    parts = [run["parts"].get(name, 0.0) for name in PARTS]
    return [f"{part:.2f}" for part in (*parts, run["startup_s"] - sum(parts))]


if __name__ == "__main__":
    main()
