"""Tokens a second of ``generate()``: eager and compiled on tpu, a loop by hand in JAX, and CPU eager; and what new lengths cost.

    python -m benchmarks.generate --layers 4

GPT-2, greedy. The four take turns, each in a process of its own, after one call that compiles; ratios are medians over the rounds.
The second table gives prompts of 50 random lengths to each, one after the other, from a cold start.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jax_models import GPTShape

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"eager": "tpu, eager", "static": "tpu, compiled", "jax": "JAX, by hand", "cpu": "CPU, eager"}
Generate = Callable[[int, int], None]
"""``generate(prompt_length, num_new)``"""


def main() -> None:
    """Run the rounds and print two tables, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(GPTShape):
        parser.add_argument(f"--{field.name}", type=int, default=1 if field.name == "batch" else field.default)
    parser.add_argument("--prompt", type=int, default=50, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=5, help="times that all take turns")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--lengths", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = GPTShape(*(getattr(arguments, f.name) for f in fields(GPTShape)))
    if arguments.worker:
        make = {"jax": _jax, "cpu": _torch, "eager": _torch, "static": _torch}[arguments.worker]
        generate, programs = make(shape, arguments.worker)
        print(json.dumps(_lengths(generate, programs, arguments.lengths) if arguments.lengths
                         else _speed(generate, arguments.prompt, arguments.new)))
        return
    rounds = [{kind: _process(kind, 0) for kind in KINDS} for _ in range(arguments.rounds)]
    lengths = {kind: _process(kind, 50) for kind in KINDS}
    print(f"GPT-2: {', '.join(f'{f.name} {v}' for f, v in zip(fields(shape), astuple(shape), strict=True))}; "
          f"prompt {arguments.prompt}, {arguments.new} new tokens, {arguments.rounds} rounds\n")
    print(tables.markdown(("generate()", "tokens / s", "ms / token", "speed / JAX", "speed / CPU"), [
        (name, f"{_median(rounds, kind):.0f}", f"{1e3 / _median(rounds, kind):.2f}",
         *(f"{statistics.median(r[kind] / r[other] for r in rounds):.2f}" for other in ("jax", "cpu")))
        for kind, name in KINDS.items()]))
    print()
    print(tables.markdown(("50 prompt lengths, 4 new tokens", "seconds", "programs", "the second 25: s", "programs"), [
        (name, *(f"{lengths[kind][key]:.1f}" if "s" in key.split("_")[-1:] else str(lengths[kind][key])
                 for key in ("all_s", "programs", "second_s", "second_programs")))
        for kind, name in KINDS.items()]))


def _median(rounds: list[dict[str, float]], kind: str) -> float:
    return statistics.median(r[kind] for r in rounds)


def _process(kind: str, lengths: int) -> Any:
    command = [sys.executable, "-m", "benchmarks.generate", *sys.argv[1:], "--worker", kind, "--lengths", str(lengths)]
    autoload = "1" if kind in ("eager", "static") else "0"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHTPU_CACHE_DIR": cache, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
        result = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{kind}: exit status {result.returncode}\n{result.stderr[-4000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def _speed(generate: Generate, prompt: int, num_new: int) -> float:
    generate(prompt, num_new)
    start = time.perf_counter()
    generate(prompt, num_new)
    return num_new / (time.perf_counter() - start)


def _lengths(generate: Generate, programs: Callable[[], int], count: int) -> dict[str, Any]:
    order = random.Random(0).sample(range(1, 101), count)
    start, marks = time.perf_counter(), []
    for half in (order[: count // 2], order[count // 2:]):
        for length in half:
            generate(length, 4)
        marks.append((time.perf_counter() - start, programs()))
    (first_s, first), (all_s, total) = marks
    return {"all_s": all_s, "programs": total, "second_s": all_s - first_s, "second_programs": total - first}


def _jax(shape: GPTShape, _: str) -> tuple[Generate, Callable[[], int]]:
    import numpy as np

    from benchmarks.jax_generate import Generator

    generator = Generator(shape, shape.seq)
    draws = np.random.default_rng(0)

    def generate(prompt: int, num_new: int) -> None:
        generator(draws.integers(0, shape.vocab, (shape.batch, prompt)), num_new)

    return generate, generator._step._cache_size  # type: ignore[attr-defined]


def _torch(shape: GPTShape, kind: str) -> tuple[Generate, Callable[[], int]]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    device = "cpu" if kind == "cpu" else "tpu"
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=shape.vocab, n_positions=shape.seq, n_embd=shape.width, n_layer=shape.layers, n_head=shape.heads,
                        bos_token_id=None, eos_token_id=None)
    model: Any = GPT2LMHeadModel(config)
    model = model.eval().to(device)
    options = {"cache_implementation": "static"} if kind == "static" else {}

    def generate(prompt: int, num_new: int) -> None:
        ids = torch.randint(0, shape.vocab, (shape.batch, prompt))  # from the host, as of a tokenizer
        model.generate(ids.to(device), max_new_tokens=num_new, do_sample=False, pad_token_id=0, **options)

    def programs() -> int:
        if kind == "cpu":
            return 0
        from torchtpu import inspect

        return inspect.counters()["compiles"]

    return generate, programs


if __name__ == "__main__":
    main()
