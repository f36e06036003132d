"""What it costs to record one operator, beside running it in CPU eager.

    python -m benchmarks.record

Each case is a chain of 1,000 operators on 4x4 tensors, timed from Python while it is recorded; the program runs
outside of the clock. tpu and CPU take turns, and the ratio is the median over the pairs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks import tables

LENGTH = 1000
LIST = 10
Case = Callable[[str], Callable[[], object]]


def add(device: str) -> Callable[[], object]:
    """``a + b``, without autograd."""
    a, b = torch.ones(4, 4, device=device), torch.full((4, 4), 1e-3, device=device)

    def chain() -> object:
        y = a
        for _ in range(LENGTH):
            y = y + b
        return y

    return chain


def add_with_grad(device: str) -> Callable[[], object]:
    """``a + b`` where ``b`` requires a gradient."""
    a, b = torch.ones(4, 4, device=device), torch.full((4, 4), 1e-3, device=device, requires_grad=True)

    def chain() -> object:
        y = a
        for _ in range(LENGTH):
            y = y + b
        return y

    return chain


def view(device: str) -> Callable[[], object]:
    """A view of a view."""
    a = torch.ones(4, 4, device=device)

    def chain() -> object:
        y = a
        for _ in range(LENGTH):
            y = y.transpose(0, 1)
        return y

    return chain


def in_place(device: str) -> Callable[[], object]:
    """``y.add_(b)``."""
    y, b = torch.ones(4, 4, device=device), torch.full((4, 4), 1e-3, device=device)

    def chain() -> object:
        for _ in range(LENGTH):
            y.add_(b)
        return y

    return chain


def scalar(device: str) -> Callable[[], object]:
    """A tensor and a Python number."""
    a = torch.ones(4, 4, device=device)

    def chain() -> object:
        y = a
        for _ in range(LENGTH):
            y = y * 0.999
        return y

    return chain


def foreach(device: str) -> Callable[[], object]:
    """Lists of ten tensors: a tenth of the calls, the same number of tensors."""
    ys = [torch.ones(4, 4, device=device) for _ in range(LIST)]
    bs = [torch.full((4, 4), 1e-3, device=device) for _ in range(LIST)]

    def chain() -> object:
        for _ in range(LENGTH // LIST):
            torch._foreach_add_(ys, bs, alpha=0.5)
        return ys

    return chain


CASES: dict[str, Case] = {
    "a + b": add, "a + b, with grad": add_with_grad, "view": view, "in-place add": in_place, "tensor * number": scalar,
    f"foreach add, {LIST} tensors a call": foreach,
}


def main() -> None:
    """Measure every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="alternating runs of each case")
    parser.add_argument("--device", default="tpu")
    arguments = parser.parse_args()
    rows = []
    for name, case in CASES.items():
        tpu, cpu = case(arguments.device), case("cpu")
        with torch.set_grad_enabled(case is add_with_grad):
            for _ in range(3):
                _timed(tpu, arguments.device)
                _timed(cpu, "cpu")
            mine, theirs, ratio = tables.alternating(
                lambda tpu=tpu: _timed(tpu, arguments.device), lambda cpu=cpu: _timed(cpu, "cpu"), arguments.pairs)
        rows.append((name, f"{mine * 1e6:.2f}", f"{theirs * 1e6:.2f}", f"{ratio:.2f}"))
    print(tables.markdown(("one operator", "tpu, us", "CPU eager, us", "tpu / CPU"), rows))


def _timed(chain: Callable[[], object], device: str) -> float:
    """Seconds an operator; what was recorded runs, and is dropped, after the clock has stopped."""
    start = time.perf_counter()
    result = chain()
    seconds = (time.perf_counter() - start) / LENGTH
    if device != "cpu":
        torch.accelerator.synchronize()
    del result
    return seconds


if __name__ == "__main__":
    main()
