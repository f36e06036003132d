"""The end of the process, and long runs: nothing hangs, nothing is said, nothing grows."""

from __future__ import annotations

import textwrap

import pytest

PENDING = {
    "recorded": "y = torch.ones(50, 50, device='tpu') @ torch.ones(50, 50, device='tpu')",
    "running": """
        y = torch.ones(800, 800, device='tpu')
        for _ in range(20):
            y = y @ y / 800
        torch.tpu.Event(enable_timing=True).record()""",
    "uploading": "y = torch.ones(1 << 24).pin_memory().to('tpu', non_blocking=True)",
    "training": """
        model = torch.nn.Linear(9, 9).to('tpu')
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 9, device='tpu')).sum().backward()
        optimizer.step()""",
    "thread": """
        import threading
        kept = []
        thread = threading.Thread(target=lambda: kept.append(torch.ones(5, device='tpu') + 1))
        thread.start()
        thread.join()""",
}


@pytest.mark.parametrize("work", PENDING)
def test_work_is_pending_when_the_interpreter_ends(work, fresh):
    fresh("import torch\n" + textwrap.dedent(PENDING[work]) + "\nprint('end')\n")


def test_tensors_outlive_the_interpreter_in_cycles_and_modules(fresh):
    fresh("""
        import sys, torch
        class Node: pass
        node = Node(); node.self = node; node.x = torch.ones(3, device="tpu") * 2
        sys.kept = [torch.rand(2, device="tpu", requires_grad=True).sum()]
        torch.kept = torch.tpu.Event(); torch.kept.record()
        stream, generator = torch.tpu.Stream(), torch.Generator("tpu")
        import atexit
        atexit.register(lambda: print(node.x.sum().item()))
    """)


def test_sys_exit_keeps_its_code(fresh):
    with pytest.raises(AssertionError, match="exit code 3"):
        fresh("""
            import sys, torch
            x = torch.ones(3, device="tpu") + 1
            sys.exit(3)
        """)


def test_ten_thousand_steps_are_flat_in_memory(fresh):
    done = fresh("""
        import resource, torch

        def resident_kib():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * resource.getpagesize() // 1024

        w = torch.ones(4, device="tpu", requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=1e-4, momentum=0.9)
        x = torch.ones(4, device="tpu")
        sizes = []
        for step in range(10_000):
            loss = (w * x - step * 1e-4).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                loss.item()
            if step in (2_000, 9_999):
                torch.tpu.synchronize()
                sizes.append(resident_kib())
        from torchtpu import inspect
        counters = inspect.counters()
        print(sizes[1] - sizes[0], counters["programs"], counters["signatures"] < 60, torch.tpu.memory_allocated() < 1000)
    """)
    grown, programs, few_signatures, small = done.stdout.split()
    assert int(grown) < 6 * 1024, f"{grown} KiB more after 8,000 steps"
    assert int(programs) <= 5 and few_signatures == small == "True"
