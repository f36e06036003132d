"""What `make demo` shows: each program of ``examples/`` on CPU, on tpu, and its step written by hand in JAX.

    python -m benchmarks.demo --json demo.json

Every run is a process of its own, one after the other, so that no two of them share cores. It fails when an accuracy
or a loss misses its bar, or when an operator fell back to the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Example:
    """One program of ``examples/`` and the bars it is held to."""

    name: str
    title: str
    min_accuracy: float | None = None
    max_loss_ratio: float | None = None


EXAMPLES = (
    Example("digits_cnn", "CNN, digits", min_accuracy=0.97),
    Example("digits_vit", "ViT, digits", min_accuracy=0.95),
    Example("gpt_text", "GPT, English", max_loss_ratio=1.01),
)


def main() -> int:
    """Run everything, print the table, write the JSON; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Train real models on real data: CPU, tpu and JAX by hand.")
    parser.add_argument("--json", default="demo.json", help="where the numbers go")
    parser.add_argument("--only", choices=[e.name for e in EXAMPLES], help="one example instead of all")
    parser.add_argument("--quick", action="store_true", help="a few steps of each: the bars are not checked")
    arguments = parser.parse_args()
    console, started = Console(), time.perf_counter()
    chosen = [e for e in EXAMPLES if arguments.only in (None, e.name)]
    runs = [(e, kind) for e in chosen for kind in ("cpu", "tpu", "jax")]
    results: dict[str, dict[str, Any]] = {e.name: {} for e in chosen}
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for example, kind in runs:
            task = progress.add_task(f"{example.title} · {kind}", total=None)
            results[example.name][kind] = _run(example, kind, arguments.quick, progress, task)
            if not console.is_terminal:  # no bar is drawn there
                print(f"{example.title} on {kind}: done after {time.perf_counter() - started:.0f} s", flush=True)
    failures = [f for e in chosen for f in _failures(e, results[e.name], checked=not arguments.quick)]
    console.print(_table(chosen, results))
    for line in _remarks(results):
        console.print(line, markup=False, highlight=False)
    results["_"] = {"seconds": round(time.perf_counter() - started, 1), "failures": failures}
    Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"{results['_']['seconds']:.0f} s in all; the numbers are in {arguments.json}")
    for failure in failures:
        console.print(f"MISSED  {failure}", style="bold red", markup=False)
    return 1 if failures else 0


def _run(example: Example, kind: str, quick: bool, progress: Progress, task: Any) -> dict[str, Any]:
    """One worker process; its standard output is lines of JSON: progress, and last the result."""
    command = [sys.executable, "-m", "benchmarks.demo_worker", example.name, kind, *(["--quick"] if quick else [])]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if kind == "tpu" else "0"}
    result: dict[str, Any] = {}
    with tempfile.TemporaryFile("w+") as errors:  # a file: a full pipe that nobody reads would stop the worker
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=errors
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                if "total" in message:
                    progress.update(task, total=message["total"], completed=message["step"])
                else:
                    result = message
        errors.seek(0)
        text = errors.read()
    progress.update(task, total=progress.tasks[task].completed or 1)
    progress.stop_task(task)
    if process.returncode != 0 or not result:
        tail = [line for line in text.splitlines() if line.strip()][-1:] or ["no message"]
        return {"error": f"exit status {process.returncode}: {tail[0]}", "stderr": text[-4000:]}
    return result


def _failures(example: Example, result: dict[str, Any], *, checked: bool) -> list[str]:
    failures = [f"{example.title}: {kind} failed, {r['error']}" for kind, r in result.items() if "error" in r]
    if failures or not checked:
        return failures
    cpu, tpu = result["cpu"], result["tpu"]
    for kind, run in (("cpu", cpu), ("tpu", tpu)):
        if example.min_accuracy is not None and run["accuracy"] < example.min_accuracy:
            failures.append(f"{example.title}: {run['accuracy']:.2%} on {kind}, expected {example.min_accuracy:.0%}")
    if example.max_loss_ratio is not None and tpu["loss"] > cpu["loss"] * example.max_loss_ratio:
        failures.append(f"{example.title}: loss {tpu['loss']:.4f} on tpu, more than 1 % above {cpu['loss']:.4f} on CPU")
    if tpu["fallbacks"]:
        failures.append(f"{example.title}: ran on the CPU: {tpu['fallbacks']}")
    return failures


def _table(examples: list[Example], results: dict[str, dict[str, Any]]) -> Table:
    """One column an example, one row a number: it fits a narrow terminal."""
    table = Table(title="PyTorch examples on CPU and on tpu, and their steps hand-written in JAX")
    table.add_column("")
    for example in examples:
        table.add_column(example.title, justify="right")
    runs = [results[e.name] for e in examples]

    def row(title: str, kind: str, key: str, form: str) -> None:
        table.add_row(title, *(_number(run.get(kind, {}).get(key), form) for run in runs))

    for title, key, form in (("final loss", "loss", ".4f"), ("test accuracy", "accuracy", ".2%")):
        row(f"{title}, CPU", "cpu", key, form)
        row(f"{title}, tpu", "tpu", key, form)
    for title, kind in (("CPU eager", "cpu"), ("tpu", "tpu"), ("JAX by hand", "jax")):
        row(f"ms a step, {title}", kind, "step_ms", ".2f")
    for title, kind in (("CPU eager", "cpu"), ("JAX by hand", "jax")):
        ratios = [_ratio(run.get("tpu", {}), run.get(kind, {})) for run in runs]
        table.add_row(f"tpu / {title}", *(_number(ratio, ".2f") for ratio in ratios))
    row("programs, training", "tpu", "programs_train", "d")
    row("programs, evaluation", "tpu", "programs_after", "d")
    row("seconds compiling", "tpu", "compile_s", ".1f")
    row("fallbacks", "tpu", "num_fallbacks", "d")
    row("syncs a step", "tpu", "syncs_per_step", ".2f")
    return table


def _ratio(mine: dict[str, Any], other: dict[str, Any]) -> float | None:
    return mine["step_ms"] / other["step_ms"] if "step_ms" in mine and "step_ms" in other else None


def _remarks(results: dict[str, dict[str, Any]]) -> list[str]:
    """What does not fit a table: the text the GPT wrote, and its step compiled for a chip."""
    tpu = results.get("gpt_text", {}).get("tpu", {})
    lines = []
    if "sample" in tpu:
        text = re.sub(r"\s+", " ", tpu["sample"])
        lines.append(f"\nThe GPT, trained on tpu, writes: {text}\n")
    aot = tpu.get("aot")
    if aot and "sentence" in aot:
        lines.append(aot["sentence"])
    elif aot:
        peak, flops = aot["hbm_peak_bytes"] / 2**20, aot["flops"] / 1e9
        lines.append(f"Its training step, compiled ahead of time for one v5e chip: {peak:.0f} MiB of HBM at the peak, "
                     f"{flops:.2f} GFLOP a step.")
    return lines


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
