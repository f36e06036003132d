"""Loading ahead leaves the recorded programs as they are: the same programs, cut at the same places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.data.conftest import wait_until
from torchtpu import inspect
from torchtpu.data import mask, multiples_of, prefetch

Batch = tuple[torch.Tensor, torch.Tensor]


def counts() -> dict[str, Any]:
    torch.tpu.synchronize()
    found = inspect.counters()
    return {name: found[name] for name in ("compiles", "records", "launches")} | {
        f"ended by {reason}": count for reason, count in found["flushes"].items()}


def since(before: dict[str, Any]) -> dict[str, Any]:
    return {name: count - before.get(name, 0) for name, count in counts().items() if count != before.get(name, 0)}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(3)), nn.Linear(6, 3)).to("tpu")


def train(batches: Iterable[Batch]) -> list[float]:
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in batches:
        loss = nn.functional.cross_entropy(trained(x.to("tpu")), y.to("tpu"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def evaluate(batches: Iterable[Batch]) -> list[list[float]]:
    trained = model()
    with torch.no_grad():
        rows = [trained(x.to("tpu")).relu().sum(0) for x, _ in batches]  # nothing is read in the loop: programs end by repetition
    return [row.tolist() for row in rows]


class Ahead:
    """Batches of a loader; each is handed out only after prefetch has loaded as many ahead as it may."""

    def __init__(self, loader: DataLoader, depth: int) -> None:
        self.loader, self.depth, self.num_loaded = loader, depth, 0

    def __iter__(self) -> Iterator[Batch]:
        for taken, batch in enumerate(prefetch(self.load(), "tpu", depth=self.depth), 1):
            wait_until(lambda taken=taken: self.num_loaded >= min(taken + self.depth, len(self.loader)))
            yield batch

    def load(self) -> Iterator[Batch]:
        for batch in self.loader:
            self.num_loaded += 1
            yield batch


@pytest.mark.parametrize("loop", [train, evaluate])
@pytest.mark.parametrize("depth", [1, 5])
def test_loops_run_the_same_programs(loop, depth):
    loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,))), batch_size=4)
    expected = loop(loader)  # compiles
    before = counts()
    assert loop(loader) == expected
    plain = since(before)
    assert "compiles" not in plain
    before = counts()
    assert loop(Ahead(loader, depth)) == expected
    assert since(before) == plain


def test_a_channels_last_batch_is_moved_as_it_lies_in_memory():
    images = torch.randn(5, 3, 4, 4).to(memory_format=torch.channels_last)
    before = counts()
    (moved,) = prefetch([images], "tpu")
    assert "records" not in since(before)
    assert moved.stride() == images.stride()
    assert not moved._is_view()
    assert torch.equal(moved.cpu(), images)


def test_batches_made_on_the_device_are_programs_of_the_thread_that_makes_them():
    def source() -> Iterator[torch.Tensor]:
        for number in range(4):
            yield torch.full((7,), float(number)).to("tpu").cos() + 1

    recorded = torch.ones(7, device="tpu") * 2
    sums = [recorded + x for x in prefetch(source(), "tpu")]
    assert inspect.counters()["flushes"].get("value of another program", 0) == 0
    for number, total in enumerate(sums):
        assert total.cpu() == pytest.approx(torch.full((7,), float(number)).cos() + 3)


def test_all_sizes_of_a_bucket_share_a_program():
    def lengths(sizes: Iterable[int]) -> Iterator[dict[str, torch.Tensor]]:
        for size in sizes:
            yield {"x": torch.ones(4 if size % 3 else 3, size)}

    def run(sizes: Iterable[int]) -> list[float]:
        batches = prefetch(lengths(sizes), "tpu", pad={0: 4}, bucket={1: multiples_of(16)})
        return [((batch["x"].sum(1) * mask(batch["x"])).sum() / mask(batch["x"]).sum()).item() for batch in batches]

    assert run([5, 6]) == [5, 6]
    before = counts()
    assert run(range(3, 17)) == list(range(3, 17))
    assert "compiles" not in since(before)


def test_a_compiled_loop_is_cut_around_the_loading_alone():
    from torch._dynamo.utils import counters

    @torch.compile(backend="tpu")
    def total(batches: Iterable[torch.Tensor]) -> torch.Tensor:
        result = torch.zeros((), device="tpu")
        for x in batches:
            result = result + x.sum()
        return result

    counters.clear()
    assert total(prefetch([torch.ones(3), torch.ones(3) * 2], "tpu")).item() == 9
    assert counters["graph_break"] == {}


def test_plain_loader_with_workers_and_pinned_memory(fresh):
    """The same numbers, plain and loaded ahead, whatever of PyTorch's own means is used."""
    done = fresh("""
        import warnings
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from torchtpu import inspect
        from torchtpu.data import prefetch

        warnings.filterwarnings("ignore", message=".*fork.*")  # Python warns of threads beside a fork
        data = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12))
        loader = DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)

        def run(batches):
            w = torch.ones(2, 2, device="tpu", requires_grad=True)
            optimizer = torch.optim.SGD([w], lr=1e-4)
            for x, y in batches:
                loss = ((x.to("tpu", non_blocking=True) @ w).sum(1) - y.to("tpu", non_blocking=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return w.tolist()

        expected = run([batch for batch in DataLoader(data, batch_size=4)])
        for epoch in range(2):
            assert run(loader) == expected
            compiles = inspect.counters()["compiles"]
            assert run(prefetch(loader, "tpu")) == expected
            assert inspect.counters()["compiles"] == compiles
        print("done")
    """)
    assert done.stdout == "done\n"
