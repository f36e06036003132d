"""Order, errors and ends of loops over prefetched batches."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.data.conftest import loading_threads, wait_until
from torchtpu.data import prefetch
from torchtpu.errors import PrefetchArgumentError, PrefetchRestartError


class Source:
    """Numbers as tensors, with a note of how many were made and whether the last iterator was closed."""

    def __init__(self, count: int, error_at: int | None = None) -> None:
        self.count, self.error_at = count, error_at
        self.num_made, self.is_closed = 0, False
        self.dataset = "a dataset"

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.num_made, self.is_closed = 0, False
        try:
            for number in range(self.count):
                if number == self.error_at:
                    raise ZeroDivisionError(f"at {number}")
                self.num_made += 1
                yield torch.tensor(number)
        finally:
            self.is_closed = True


def numbers(batches: Any) -> list[int]:
    return [int(batch) for batch in batches]


@pytest.mark.parametrize("device", ["tpu", "cpu", 0, torch.device("tpu", 0)], ids=str)
def test_batches_come_in_order_on_the_device(device):
    expected = torch.empty(0, device=device).device
    found = list(prefetch(Source(9), device))
    assert numbers(found) == list(range(9))
    assert {batch.device for batch in found} == {expected}


def test_it_loads_depth_batches_ahead_and_no_more():
    source = Source(20)
    loop = iter(prefetch(source, "cpu", depth=3))
    for taken in range(5):
        wait_until(lambda taken=taken: source.num_made == taken + 3)
        assert not wait_for_more(source, taken + 3)
        next(loop)
    loop.close()


def wait_for_more(source: Source, count: int) -> bool:
    """Whether the thread goes on although it should not; it would need microseconds."""
    threading.Event().wait(0.02)
    return source.num_made > count


def test_it_has_the_length_and_the_attributes_of_the_loader():
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4)
    batches = prefetch(loader, "cpu")
    assert (len(batches), batches.batch_size, batches.dataset) == (3, 4, loader.dataset)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = batches.no_such_thing
    with pytest.raises(TypeError, match="len"):
        len(prefetch(iter([]), "cpu"))


def test_it_can_be_iterated_again_and_twice_at_once():
    batches = prefetch(Source(5), "cpu")
    assert numbers(batches) == numbers(batches) == [0, 1, 2, 3, 4]
    assert [(int(a), int(b)) for a, b in itertools.product(batches, batches)] == list(itertools.product(range(5), range(5)))
    pairs = zip(prefetch([1, 2], "cpu"), prefetch([3, 4], "cpu"), strict=True)
    assert list(pairs) == [(1, 3), (2, 4)]


def test_a_generator_can_be_read_once():
    batches = prefetch(iter(Source(5)), "cpu")
    assert numbers(itertools.islice(batches, 2)) == [0, 1]
    with pytest.raises(PrefetchRestartError, match=r"class generator.*it = iter\(prefetch"):
        iter(batches)


def test_one_iterator_serves_several_loops():
    loop = iter(prefetch(iter(Source(7)), "cpu"))
    assert numbers(itertools.islice(loop, 3)) == [0, 1, 2]
    assert numbers(loop) == [3, 4, 5, 6]
    assert list(loop) == []


def test_prefetched_batches_can_be_prefetched():
    source = Source(6)
    assert numbers(prefetch(prefetch(source, "cpu"), "tpu")) == list(range(6))
    for _ in prefetch(prefetch(source, "cpu"), "tpu"):
        break
    wait_until(lambda: source.is_closed and not loading_threads())


def test_an_error_comes_in_its_place_with_its_traceback():
    loop = iter(prefetch(Source(5, error_at=3), "cpu", depth=4))
    assert [int(next(loop)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError, match="at 3") as raised:
        next(loop)
    assert traceback.extract_tb(raised.tb)[-1].line == 'raise ZeroDivisionError(f"at {number}")'
    assert list(loop) == []


def test_an_error_of_making_the_iterator_is_raised_at_once():
    class Broken:
        def __iter__(self) -> Iterator[Any]:
            raise OSError("no data")

    with pytest.raises(OSError, match="no data"):
        iter(prefetch(Broken(), "cpu"))


def test_a_stray_stop_iteration_does_not_end_the_loop_silently():
    def size(_: int) -> int:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration was raised"):
        list(prefetch([torch.ones(3)], "cpu", bucket={0: size}))


def leave_by_break(batches: Any) -> None:
    for _ in batches:
        break


def leave_by_error(batches: Any) -> None:
    with contextlib.suppress(KeyError):
        for _ in batches:
            raise KeyError


def leave_by_collection(batches: Any) -> None:
    cycle = [iter(batches)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()


def leave_by_closing(batches: Any) -> None:
    loop = iter(batches)
    next(loop)
    loop.close()
    assert list(loop) == []


def leave_before_the_first(batches: Any) -> None:
    iter(batches)


@pytest.mark.parametrize(
    "leave", [leave_by_break, leave_by_error, leave_by_collection, leave_by_closing, leave_before_the_first])
def test_leaving_a_loop_ends_its_thread_and_closes_its_source(leave):
    source = Source(1000)
    batches = prefetch(source, "tpu")
    leave(batches)
    wait_until(lambda: not loading_threads())
    assert source.is_closed
    assert source.num_made <= 4
    assert numbers(itertools.islice(batches, 3)) == [0, 1, 2]


def test_a_generator_is_closed_although_somebody_holds_it():
    source = Source(1000)
    generator = iter(source)
    leave_by_break(prefetch(generator, "cpu"))
    wait_until(lambda: not loading_threads())
    assert source.is_closed
    assert list(generator) == []


def test_what_lay_ready_is_freed_when_a_loop_is_left():
    batches = prefetch(Source(100), "tpu", depth=5)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    leave_by_break(batches)
    wait_until(lambda: not loading_threads())
    gc.collect()
    assert torch.tpu.memory_allocated() == before


def test_the_next_loop_waits_for_the_one_that_was_left():
    class Exclusive:
        """Like a DataLoader with persistent workers: one iterator at a time."""

        def __init__(self) -> None:
            self.num_readers, self.go_on = 0, threading.Event()

        def __iter__(self) -> Iterator[int]:
            assert self.num_readers == 0
            self.num_readers += 1
            try:
                yield 0
                self.go_on.wait(60)
                yield 1
            finally:
                self.num_readers -= 1

    source = Exclusive()
    batches = prefetch(source, "cpu")
    leave_by_break(batches)
    threading.Timer(0.05, source.go_on.set).start()
    assert list(batches) == [0, 1]


def test_ctrl_c_interrupts_the_wait_and_the_loop_can_go_on():
    go_on = threading.Event()

    def source() -> Iterator[int]:
        go_on.wait(60)
        yield from range(4)

    loop = iter(prefetch(source(), "cpu", depth=1))
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)  # Ctrl-C, but it cannot hit pytest
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            next(loop)
    finally:
        signal.signal(signal.SIGALRM, handler)
    go_on.set()
    assert list(loop) == [0, 1, 2, 3]


def test_gradient_mode_is_that_of_the_loop():
    def source() -> Iterator[bool]:
        yield torch.is_grad_enabled()

    with torch.no_grad():
        assert list(prefetch(source(), "cpu")) == [False]
    assert list(prefetch(source(), "cpu")) == [True]


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, None])
def test_a_depth_below_one_is_refused(depth):
    with pytest.raises(PrefetchArgumentError, match="expected a depth of at least 1, got"):
        prefetch([], "cpu", depth=depth)


def test_a_loader_that_cannot_be_iterated_is_refused():
    with pytest.raises(PrefetchArgumentError, match="expected an iterable loader, got int"):
        prefetch(3, "cpu")  # type: ignore[arg-type]


def test_the_interpreter_ends_whatever_the_source_does(fresh):
    done = fresh("""
        import threading, torch
        from torchtpu.data import prefetch

        def endless(pause):
            while True:
                pause()
                yield torch.ones(1000)

        fast = iter(prefetch(endless(lambda: None), "tpu", depth=10_000))
        full = iter(prefetch(endless(lambda: None), "tpu"))
        blocked = iter(prefetch(endless(threading.Event().wait), "tpu"))
        for _ in range(5):
            next(fast)
            next(full)
        print("end")
    """)
    assert done.stdout == "end\n"


def test_an_iterator_in_a_forked_child_says_so(fresh):
    done = fresh("""
        import os, torch, warnings
        from torchtpu.data import prefetch
        from torchtpu.errors import PrefetchForkError

        warnings.filterwarnings("ignore", message=".*fork.*")
        batches = prefetch([torch.ones(1) * n for n in range(3)], "cpu")
        loop = iter(batches)
        next(loop)
        child = os.fork()
        if child == 0:
            try:
                next(loop)
            except PrefetchForkError as error:
                assert "Begin a new one in the child" in str(error)
                assert [int(x) for x in batches] == [0, 1, 2]
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print([int(x) for x in loop])
    """)
    assert done.stdout == "[1, 2]\n"


def test_no_reference_cycle_holds_a_failed_loop():
    source = Source(5, error_at=0)
    gc.collect()
    gc.disable()
    try:
        loop = iter(prefetch(source, "cpu"))
        with contextlib.suppress(ZeroDivisionError):
            next(loop)
        wait_until(lambda: not loading_threads())
        assert sys.getrefcount(loop) == 2
    finally:
        gc.enable()
