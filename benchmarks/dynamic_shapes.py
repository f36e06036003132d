"""What many sizes cost a compiled transformer encoder in inference: programs, and the seconds that XLA takes to compile them.

    python -m benchmarks.dynamic_shapes

Fifty batch sizes, then fifty sequence lengths, each in a process of its own without the cache on disk: with exact sizes, and with
the default policy of buckets. Large programs are those that hold the encoder; the others pad and cut out. Each input is uploaded,
and each result is read. The last column is the time of all fifty calls, Dynamo's tracing included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from typing import Any

import torch
from torch import nn

from benchmarks import tables

WIDTH, HEADS, LAYERS = 128, 4, 2


class Layer(nn.Module):
    """A pre-norm encoder layer of plain operators: attention to all places, and a GELU network."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.network_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, WIDTH] -> the same."""
        q, k, v = self.project(self.attention_norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        x = x + self.merge(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.network(self.network_norm(x))


def measure(changing: str, with_buckets: bool, count: int) -> tuple[str, ...]:
    """One row of the table."""
    import torchtpu.inspect
    from torchtpu.compile import ShapePolicy, set_shape_policy

    torch.manual_seed(0)
    set_shape_policy(ShapePolicy() if with_buckets else ShapePolicy(buckets=None))
    model = nn.Sequential(*(Layer() for _ in range(LAYERS))).to("tpu")
    weights_bytes = sum(p.nbytes for p in model.parameters())
    compiled = torch.compile(model, backend="tpu")
    sizes = [3 + (7 * k) % count for k in range(count)]  # 7 and 50 share no factor: every size once, in no order
    start = time.perf_counter()
    with torch.no_grad():
        for size in sizes:
            shape = (size, 32) if changing == "batch size" else (4, size)
            compiled(torch.randn(*shape, WIDTH).to("tpu")).cpu()
    seconds = time.perf_counter() - start
    programs = torchtpu.inspect.programs()
    large = [p for p in programs if p.memory["argument_bytes"] >= weights_bytes]
    small = [p for p in programs if p.memory["argument_bytes"] < weights_bytes]
    return (changing, "buckets" if with_buckets else "exact", str(len(large)), f"{sum(p.compile_s for p in large):.1f}",
            str(len(small)), f"{sum(p.compile_s for p in small):.1f}", f"{seconds:.1f}")


def main() -> None:
    """Measure every row in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="how many sizes; not a multiple of 7")
    parser.add_argument("--changing", nargs="*", default=["batch size", "sequence length"], help="which of the two")
    arguments = parser.parse_args()
    os.environ["TORCHTPU_CACHE"] = "0"
    rows: list[Any] = []
    for changing in arguments.changing:
        for with_buckets in (False, True):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                rows.append(pool.apply(measure, (changing, with_buckets, arguments.count)))
    print(tables.markdown(
        ("what changes", "sizes", "large programs", "compile, s", "small programs", "compile, s", "all calls, s"), rows))


if __name__ == "__main__":
    main()
