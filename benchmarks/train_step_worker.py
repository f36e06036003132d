"""One process of `train_step.py`: prints one line of JSON.

    python -m benchmarks.train_step_worker tpu 20 4 256 4 128 8 4096
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.jax_models import GPTShape, adamw_training, gpt_training


def main() -> None:
    """Time what the command line names, or measure the memory of its executable."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["tpu", "compiled", "jax", "torchax", "cpu"])
    parser.add_argument("steps", type=int)
    parser.add_argument("shape", type=int, nargs=6, help="layers, width, heads, seq, batch, vocab")
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    shape = GPTShape(*arguments.shape)
    if arguments.kind == "jax":
        result = jax_memory(shape) if arguments.memory else time_jax(shape, arguments.steps)
    elif arguments.kind == "torchax":
        result = time_torchax(shape, arguments.steps)
    elif arguments.kind == "compiled":
        result = time_torch(shape, arguments.steps, "tpu", drop_gradients=arguments.memory, compiled=True)
    else:
        result = time_torch(shape, arguments.steps, arguments.kind, drop_gradients=arguments.memory)
    print(json.dumps(result))


_JAX_PARTS = {"jaxpr_trace": "trace", "jaxpr_to_mlir_module": "lower", "backend_compile": "XLA"}
_durations: defaultdict[str, float] = defaultdict(float)


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    _durations[_JAX_PARTS.get(event.rpartition("/")[2].removesuffix("_duration"), "")] += duration_secs


def _parts(compiled: bool) -> dict[str, float]:
    """Seconds of JAX's stages so far, and of Dynamo with AOTAutograd."""
    parts = {name: _durations[name] for name in _JAX_PARTS.values()}
    if compiled:
        from torch._dynamo.utils import compilation_time_metrics

        parts["Dynamo"] = sum(compilation_time_metrics["_compile.compile_inner"])
    return parts


def time_jax(shape: GPTShape, steps: int) -> dict[str, Any]:
    """The hand-written step."""
    start = _start_client()
    step, state = gpt_training(shape)
    return _timed_jax(step, state, _jax_ids(shape), start, steps)


def time_torchax(shape: GPTShape, steps: int) -> dict[str, Any]:
    """transformers' GPT-2 as torchax has it: a function of JAX arrays, differentiated and compiled by JAX."""
    import torch

    torchax, interop = importlib.import_module("torchax"), importlib.import_module("torchax.interop")  # no requirement of ours
    model, ids = _torch_model(shape)
    start = _start_client()
    environment = torchax.default_env()
    buffers = _as_jax(model.named_buffers())

    def loss_of(p: dict[str, Any], ids: Any) -> Any:
        with environment:
            given = interop.torch_view(ids)
            out = torch.func.functional_call(
                model, interop.torch_view({**p, **buffers}), (), {"input_ids": given, "labels": given})
            return interop.jax_view(out.loss)

    step, state = adamw_training(loss_of, _as_jax(model.named_parameters()))
    return _timed_jax(step, state, _as_jax([("ids", ids)])["ids"], start, steps)


def _as_jax(named: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    return {name: jnp.asarray(tensor.detach().numpy()) for name, tensor in named}


def _timed_jax(step: Callable[..., Any], state: Any, ids: Any, start: float, steps: int) -> dict[str, Any]:
    def once() -> float:
        nonlocal state
        state, loss = step(state, ids)
        return float(loss)

    return {**_timed(once, start, steps), "parts": _parts(compiled=False)}


def jax_memory(shape: GPTShape) -> dict[str, Any]:
    """Bytes of the hand-written step's executable at its peak."""
    step, state = gpt_training(shape)
    found: Any = step.lower(state, _jax_ids(shape)).compile().memory_analysis()  # type: ignore[attr-defined]
    return {"peak_bytes": found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
            - found.alias_size_in_bytes}


def time_torch(
    shape: GPTShape, steps: int, device: str, *, drop_gradients: bool, compiled: bool = False,
) -> dict[str, Any]:
    """The same step in PyTorch with transformers' GPT-2, eager or with the model compiled."""
    import torch

    model, ids = _torch_model(shape)
    start = _start_client() if device == "tpu" else time.perf_counter()
    model, ids = model.to(device), ids.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    forward = torch.compile(model) if compiled else model

    def once() -> float:
        optimizer.zero_grad()
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        if drop_gradients:
            optimizer.zero_grad()
        return loss.item()

    result = _timed(once, start, steps)
    if device != "tpu":
        return result
    import torchtpu.inspect

    counters, memory = torchtpu.inspect.counters(), torchtpu.inspect.last_program_memory()
    peak = memory["argument_bytes"] + memory["output_bytes"] + memory["temp_bytes"] - memory["alias_bytes"]
    counts = {name: counters[name] for name in ("compiles", "disk_hits", "fallbacks", "flushes")}
    return {**result, "peak_bytes": peak, "parts": _parts(compiled), **counts}


def _timed(step: Callable[[], float], start: float, steps: int) -> dict[str, Any]:
    """``start``: the time before anything moved to the device."""
    for _ in range(3):
        step()
    third = time.perf_counter() - start
    times = []
    loss = float("nan")
    for _ in range(steps):
        before = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - before)
    steady = statistics.median(times)
    return {"ms": steady * 1e3, "min_ms": min(times) * 1e3, "startup_s": third - 3 * steady, "loss": loss}


def _start_client() -> float:
    """Start JAX's client, and only then the clock."""
    import jax
    import jax.numpy as jnp

    jnp.zeros(1).block_until_ready()
    jax.monitoring.register_event_duration_secs_listener(_listen)
    return time.perf_counter()


def _jax_ids(shape: GPTShape) -> Any:
    import jax

    return jax.random.randint(jax.random.key(99), (shape.batch, shape.seq), 0, shape.vocab)


def _torch_model(shape: GPTShape) -> tuple[Any, Any]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=shape.vocab, n_positions=shape.seq, n_embd=shape.width, n_layer=shape.layers, n_head=shape.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "sdpa"
    model = GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"  # else transformers warns inside forward(), where Dynamo has to break the graph
    return model, torch.randint(0, shape.vocab, (shape.batch, shape.seq))


if __name__ == "__main__":
    main()
