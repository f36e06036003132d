"""What a loader that takes 80 % of a step adds to it: in a plain loop, and loaded ahead by ``torchtpu.data.prefetch``.

    python -m benchmarks.data

The loader waits (as for a disk or a network) and computes a little with NumPy. Without loading, batches lie on the device already.
The three take turns; a step's time is that of an epoch over its steps, from its second one on, and the ratios are medians over the
rounds. The loss is read every step, or once an epoch: then the host runs ahead, and a plain loop overlaps too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import nn

from benchmarks import tables
from torchtpu.data import prefetch

Batch = tuple[torch.Tensor, torch.Tensor]


class Loader:
    """Batches that take ``seconds`` each, of which ``computing`` in NumPy."""

    def __init__(self, steps: int, batch: int, width: int, seconds: float, computing: float) -> None:
        self.steps, self.seconds, self.computing = steps, seconds, computing
        self.x = np.random.default_rng(0).standard_normal((batch, width), np.float32)
        self.y = torch.arange(batch) % 10

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.steps):
            start = time.perf_counter()
            x = self.x + np.float32(1e-3)
            while time.perf_counter() - start < self.computing * self.seconds:
                x = np.tanh(x)
            time.sleep(max(self.seconds - (time.perf_counter() - start), 0.0))
            yield torch.from_numpy(x), self.y


class Training:
    """An MLP and its optimizer."""

    def __init__(self, width: int, layers: int) -> None:
        torch.manual_seed(0)
        hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())]
        self.model = nn.Sequential(*hidden, nn.Linear(width, 10)).to("tpu")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def epoch(self, batches: Iterable[Batch], read_every_step: bool) -> float:
        """Seconds a step, the first one left out."""
        loss, start, steps = torch.zeros(()), 0.0, -1
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.model(x.to("tpu")), y.to("tpu"))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            steps += 1
            if read_every_step or steps == 0:
                loss.item()
            if steps == 0:
                torch.tpu.synchronize()
                start = time.perf_counter()
        loss.item()
        torch.tpu.synchronize()
        return (time.perf_counter() - start) / steps


def main() -> None:
    """Measure both ways of reading and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each kind")
    parser.add_argument("--steps", type=int, default=25, help="in an epoch")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.8, help="of a step, that loading takes")
    parser.add_argument("--computing", type=float, default=0.1, help="share of loading that is NumPy's")
    arguments = parser.parse_args()
    training = Training(arguments.width, arguments.layers)
    size = (arguments.steps, arguments.batch, arguments.width)
    ready = [(x.to("tpu"), y.to("tpu")) for x, y in Loader(*size, 0.0, 0.0)]
    for _ in range(2):
        training.epoch(ready, True)
    rows = []
    for read, name in ((True, "every step"), (False, "once an epoch")):
        step = statistics.median(training.epoch(ready, read) for _ in range(3))
        loader = Loader(*size, arguments.share * step, arguments.computing)
        ahead = prefetch(loader, "tpu")
        rounds, reports = [], []
        for _ in range(arguments.rounds):
            rounds.append((training.epoch(ready, read), training.epoch(loader, read), training.epoch(ahead, read)))
            reports.append(ahead.report())
        without, plain, prefetched = (statistics.median(times) for times in zip(*rounds, strict=True))
        rows.append((
            name, f"{without * 1e3:.1f}", f"{loader.seconds * 1e3:.1f}", f"{plain * 1e3:.1f}", f"{prefetched * 1e3:.1f}",
            f"{statistics.median(b / a for a, b, _ in rounds):.2f}", f"{statistics.median(c / a for a, _, c in rounds):.2f}",
            f"{statistics.median(report.waiting for report in reports):.0%}",
            f"{statistics.median(report.starved for report in reports):.0%}"))
    headers = ("loss read", "step without loading, ms", "loading, ms", "plain loop, ms", "prefetch, ms", "plain / without",
               "prefetch / without", "loop waited", "device starved")
    print(tables.markdown(headers, rows))


if __name__ == "__main__":
    main()
