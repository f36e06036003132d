"""One run of `make demo`, in a process of its own: an example on a device, or its step in JAX.

    python -m benchmarks.demo_worker gpt_text tpu

Writes lines of JSON: ``{"step", "total"}`` as it goes, and last the result.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_QUICK_WINDOWS = 3
_JAX_WINDOWS = 4


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example")
    parser.add_argument("kind", choices=["cpu", "tpu", "jax"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    module = importlib.import_module(arguments.example)
    run = run_jax if arguments.kind == "jax" else run_torch
    _say(run(module, arguments.kind, arguments.quick))


def run_torch(module: Any, device: str, quick: bool) -> dict[str, Any]:
    """The example as it stands, watched through its log lines."""
    length = _length(module, quick)
    total = length["steps"] if "steps" in length else length["epochs"] * 22
    seen: dict[str, Any] = {}

    def log(line: str) -> None:
        if not line.startswith("step"):
            return
        step = int(line.split()[1])
        _say({"step": step, "total": total})
        if device == "tpu":
            seen["training"] = _programs()
            if step + module.READ_EVERY > total and module.__name__ == "gpt_text":
                seen["aot"] = aot_report()

    result = module.train(device, **length, log=log)
    return result if device == "cpu" else {**result, **_counted(seen, result["steps"])}


def run_jax(module: Any, kind: str, quick: bool) -> dict[str, Any]:
    """Median time of the hand-written step over windows as long as the example's, on the example's own batches."""
    step, state, batches = {"gpt_text": _jax_gpt, "digits_cnn": _jax_cnn, "digits_vit": _jax_vit}[module.__name__](module)
    rate = np.float32(1e-3)
    windows, count = [], _QUICK_WINDOWS if quick else _JAX_WINDOWS
    for window in range(count):
        start = time.perf_counter()
        for _ in range(module.READ_EVERY):
            state, loss = step(state, *next(batches), rate)
        float(loss)
        windows.append((time.perf_counter() - start) / module.READ_EVERY)
        _say({"step": (window + 1) * module.READ_EVERY, "total": count * module.READ_EVERY})
    return {"step_ms": statistics.median(windows) * 1e3}


def aot_report(topology: str = "v5e") -> dict[str, Any]:
    """The training step that ran last, compiled ahead of time for one chip: HBM peak and flops, or one sentence."""
    if importlib.util.find_spec("libtpu") is None:
        return {"sentence": "Not compiled for a v5e chip: libtpu is not installed (pip install torchtpu[tpu])."}
    import torchtpu.estimate

    report = torchtpu.estimate.last_program(topology=topology)
    return {"hbm_peak_bytes": report["hbm_peak_bytes"], "flops": report["flops"]}


def _counted(seen: dict[str, Any], steps: int) -> dict[str, Any]:
    import torchtpu.inspect

    counters = torchtpu.inspect.counters()
    training = seen.get("training", _programs())
    return {
        "programs_train": training, "programs_after": _programs() - training, "compile_s": counters["compile_s"],
        "fallbacks": counters["fallbacks"], "num_fallbacks": sum(counters["fallbacks"].values()),
        "syncs_per_step": sum(counters["syncs"].values()) / steps,
        "flushes": counters["flushes"], "syncs": counters["syncs"], "aot": seen.get("aot"),
    }


def _programs() -> int:
    """Programs made so far, whether compiled or read from the disk cache."""
    import torchtpu.inspect

    counters = torchtpu.inspect.counters()
    return counters["compiles"] + counters["disk_hits"]


def _length(module: Any, quick: bool) -> dict[str, int]:
    if hasattr(module, "EPOCHS"):
        return {"epochs": 2 if quick else module.EPOCHS}
    return {"steps": _QUICK_WINDOWS * module.READ_EVERY if quick else module.STEPS}


def _jax_gpt(module: Any) -> tuple[Callable[..., Any], Any, Iterator[Any]]:
    import torch

    from benchmarks.jax_models import GPTShape, gpt_training

    text, _, vocabulary = module.load_text()
    shape = GPTShape(module.LAYERS, module.WIDTH, module.HEADS, module.CONTEXT, module.BATCH, len(vocabulary))
    step, state = gpt_training(shape, clip=module.CLIP, separate_targets=True)
    data = module.batches(text, torch.Generator().manual_seed(0))
    return step, state, (tuple(t.numpy().astype(np.int32) for t in pair) for pair in data)


def _jax_cnn(module: Any) -> tuple[Callable[..., Any], Any, Iterator[Any]]:
    from torch.utils.data import DataLoader

    from benchmarks.jax_models import cnn_training

    train_set, _ = module.load_data()
    loader = DataLoader(train_set, module.BATCH, shuffle=True, drop_last=True)

    def batches() -> Iterator[Any]:
        while True:
            for images, labels in loader:
                yield images.permute(0, 2, 3, 1).numpy(), labels.numpy().astype(np.int32)

    step, state = cnn_training(clip=5.0)
    return step, state, batches()


def _jax_vit(module: Any) -> tuple[Callable[..., Any], Any, Iterator[Any]]:
    import torch

    from benchmarks.jax_models import vit_training

    images, labels, _, _ = module.load_data()
    data = module.batches(images, labels, torch.Generator().manual_seed(0))
    step, state = vit_training(clip=1.0, batch=module.BATCH, patch=module.PATCH)
    return step, state, ((images.squeeze(1).numpy(), labels.numpy().astype(np.int32)) for images, labels in data)


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
