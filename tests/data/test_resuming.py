"""States of sources: what they say of the batches that the loop got, not of those that were loaded ahead."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.data.conftest import loading_threads, wait_until
from torchtpu.data import prefetch
from torchtpu.errors import PrefetchStateError


class Loader:
    """Like StatefulDataLoader: the state is that of the iterable, and is loaded by its next iterator."""

    def __init__(self, count: int) -> None:
        self.count, self.start = count, 0
        self.position = {"next": 0}  # given as it is, and changed later on

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.position["next"], self.start = self.start, 0
        while self.position["next"] < self.count:
            self.position["next"] += 1
            yield torch.tensor(self.position["next"] - 1)
        self.position["epochs"] = 1

    def state_dict(self) -> dict[str, int]:
        return self.position

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["next"]


class Iterating:
    """Like the iterators of grain: an iterator that says where it is."""

    def __init__(self, count: int) -> None:
        self.count, self.next = count, 0

    def __iter__(self) -> Iterating:
        return self

    def __next__(self) -> int:
        if self.next == self.count:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def get_state(self) -> bytes:
        return str(self.next).encode()

    def set_state(self, state: bytes) -> None:
        self.next = int(state)


def numbers(batches: Any) -> list[int]:
    return [int(batch) for batch in batches]


@pytest.mark.parametrize("make", [Loader, Iterating])
def test_a_state_is_that_of_the_batches_that_were_taken(make):
    batches = prefetch(make(9), "tpu", depth=4)
    states = [batches.state_dict(), *(batches.state_dict() for _ in batches)]
    ended = batches.state_dict()
    for taken, state in enumerate(states):
        source = make(9)
        fresh = prefetch(source, "tpu", depth=4)
        fresh.load_state_dict(state)
        assert numbers(fresh) == list(range(taken, 9))
        (source.load_state_dict if make is Loader else source.set_state)(state)  # it is the source's own
        assert numbers(source) == list(range(taken, 9))
    reference = make(9)
    assert numbers(reference) == list(range(9))
    assert ended == (reference.state_dict() if make is Loader else reference.get_state())


def test_a_loop_that_was_left_and_one_after_it():
    batches = prefetch(Loader(6), "cpu", depth=3)
    assert numbers(itertools.islice(batches, 2)) == [0, 1]
    state = batches.state_dict()
    assert state == {"next": 2}
    assert numbers(batches) == [0, 1, 2, 3, 4, 5]  # a new epoch, as of the loader itself
    batches.load_state_dict(state)
    assert batches.state_dict()["next"] in (2, 6)  # the loader's own answer before it begins
    assert numbers(batches) == [2, 3, 4, 5]


def test_an_iterator_with_a_state_goes_on_where_the_loop_was_left():
    batches = prefetch(Iterating(9), "cpu", depth=3)
    assert numbers(itertools.islice(batches, 2)) == [0, 1]
    assert numbers(itertools.islice(batches, 3)) == [2, 3, 4]
    assert numbers(batches) == [5, 6, 7, 8]
    assert numbers(batches) == []


def test_loading_a_state_ends_running_loops():
    batches = prefetch(Iterating(9), "cpu", depth=3)
    loop = iter(batches)
    assert [next(loop), next(loop)] == [0, 1]
    batches.load_state_dict(b"7")
    wait_until(lambda: not loading_threads())
    assert list(loop) == []
    assert list(batches) == [7, 8]


def test_prefetched_batches_that_are_prefetched():
    batches = prefetch(prefetch(Loader(9), "cpu", depth=2), "tpu", depth=3)
    assert numbers(itertools.islice(batches, 4)) == [0, 1, 2, 3]
    assert batches.state_dict() == {"next": 4}


def test_a_failed_batch_is_not_taken():
    def size(length: int) -> int:
        return 1 // (4 - length) + 9

    source = Loader(9)
    lengths = Loader.__iter__
    source.__class__ = type("Ragged", (Loader,), {"__iter__": lambda self: (torch.ones(int(n)) for n in lengths(self))})
    batches = prefetch(source, "cpu", bucket={0: size})
    with pytest.raises(ZeroDivisionError):
        for _ in batches:
            pass
    assert batches.state_dict() == {"next": 4}


def test_a_source_without_a_state_has_none():
    batches = prefetch([1, 2], "cpu")
    assert not hasattr(batches, "state_dict")
    assert not hasattr(batches, "load_state_dict")
    with pytest.raises(PrefetchStateError, match=r"class list\. Only the source knows"):
        batches.state_dict()
    assert hasattr(prefetch(Loader(1), "cpu"), "load_state_dict")
