"""What a flush costs when its program is known, beside the bare ``jax.jit`` call with the same arguments.

    python -m benchmarks.flush

Each program takes N tensors of 4x4 and returns N. Recording, and waiting for the results, are outside of the clock: both
sides only launch, and give the results back, which the tpu device does at its next launch. They take turns, and the ratio
is the median over the pairs.
"""

from __future__ import annotations

import argparse
import time

import torch

from benchmarks import tables

COUNTS = (1, 10, 100, 500, 1000)


class Flush:
    """N tensors doubled by the recorder, launched by an event."""

    def __init__(self, count: int) -> None:
        self.inputs = [torch.full((4, 4), float(i), device="tpu") for i in range(count)]

    def __call__(self) -> float:
        """Seconds of one launch, and of giving its results back."""
        outputs = [x + x for x in self.inputs]
        event = torch.Event(device="tpu")
        start = time.perf_counter()
        event.record()
        seconds = time.perf_counter() - start
        torch.accelerator.synchronize()
        start = time.perf_counter()
        del outputs
        return seconds + time.perf_counter() - start


class Jit:
    """The same program as one ``jax.jit`` call."""

    def __init__(self, count: int) -> None:
        import jax
        import jax.numpy as jnp

        self.wait = jax.block_until_ready
        self.inputs = [jnp.full((4, 4), float(i)) for i in range(count)]
        self.function = jax.jit(lambda *xs: [x + x for x in xs])

    def __call__(self) -> float:
        """Seconds of one launch, and of giving its results back."""
        start = time.perf_counter()
        outputs = self.function(*self.inputs)
        seconds = time.perf_counter() - start
        self.wait(outputs)
        start = time.perf_counter()
        del outputs
        return seconds + time.perf_counter() - start


def main() -> None:
    """Measure every count and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50, help="alternating runs of each count")
    arguments = parser.parse_args()
    rows = []
    with torch.no_grad():
        for count in COUNTS:
            flush, jit = Flush(count), Jit(count)
            for _ in range(5):
                flush()
                jit()
            mine, theirs, ratio = tables.alternating(flush, jit, arguments.pairs)
            rows.append((str(count), f"{mine * 1e6:.0f}", f"{theirs * 1e6:.0f}", f"{ratio:.2f}"))
    print(tables.markdown(("inputs and outputs", "flush, us", "bare jit, us", "flush / jit"), rows))


if __name__ == "__main__":
    main()
