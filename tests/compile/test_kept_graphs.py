"""Graphs that AOTAutograd made are kept on disk, and taken from there: the same results, and nothing is traced again."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from tests.compile.compare import randn, same
from torchtpu.compile import telling
from torchtpu.compile.telling import CompileWarning
from torchtpu.runtime import cache_entry, disk_cache
from torchtpu.runtime.disk_cache import CacheWarning, DiskCache

library = torch.library.Library("torchtpu_tests", "FRAGMENT")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("torchtpu_tests::double", torch.empty_like, lib=library)


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    disk = DiskCache(tmp_path, 1 << 30)
    monkeypatch.setattr(disk_cache, "of_process", lambda: disk)
    monkeypatch.setattr(disk_cache, "_told", set())
    return tmp_path


def seen(function: Callable[[], Any]) -> dict[str, int]:
    """Run with a Dynamo that knows nothing: what came of looking for graphs."""
    torch._dynamo.reset()
    counters.clear()
    function()
    return {name: counters["aot_autograd"][f"autograd_cache_{name}"] for name in ("hit", "miss", "bypass", "saved")}


MISSED = {"hit": 0, "miss": 1, "bypass": 0, "saved": 1}
FOUND = {"hit": 1, "miss": 0, "bypass": 0, "saved": 0}


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.sin() @ y).relu() * 2


def writes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.add_(1)
    return x[1:], (x * y).t()


def shared(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = x.exp() + y
    return z.view(-1), z[0]


def constant(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor([1.0, 2.0, 3.0], device=x.device) + y


CASES = [
    (chain, (randn(3, 4, grad=True), randn(4, 3, grad=True))), (chain, (randn(3, 4), randn(4, 3))),
    (writes, (randn(3, 3), randn(3, 3, grad=True))), (shared, (randn(3, 4, grad=True), randn(3, 4))),
    (constant, (randn(2, 3, grad=True), randn(2, 3)))]


@pytest.mark.parametrize(("function", "inputs"), CASES, ids=["gradients", "inference", "writes", "shared memory", "constant"])
def test_the_second_time_it_is_found(function: Any, inputs: tuple[torch.Tensor, ...]):
    assert seen(lambda: same(function, *inputs)) == MISSED
    assert seen(lambda: same(function, *inputs)) == FOUND


def test_open_sizes():
    def sizes() -> None:
        compiled = torch.compile(chain, backend="tpu", dynamic=True)
        for rows in (3, 5, 7):
            x, y = randn(rows, 4), randn(4, 2)
            torch.testing.assert_close(compiled(x.to("tpu"), y.to("tpu")).cpu(), chain(x, y), rtol=1e-4, atol=1e-5)

    assert seen(sizes) == MISSED
    assert seen(sizes) == FOUND


def test_another_function_is_another_entry():
    seen(lambda: same(chain, randn(3, 4), randn(4, 3)))
    assert seen(lambda: same(lambda x, y: (x.sin() @ y).relu() * 3, randn(3, 4), randn(4, 3))) == MISSED


def test_autocast_is_another_entry():
    def lowered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    def run() -> torch.dtype:
        return torch.compile(lowered, backend="tpu")(randn(3, 4).to("tpu"), randn(4, 3).to("tpu")).dtype

    def under_autocast() -> None:
        with torch.autocast("tpu", dtype=torch.bfloat16):
            assert run() == torch.bfloat16

    assert seen(run)["saved"] == 1
    assert seen(under_autocast)["hit"] == 0


def test_a_generator_of_a_graph_draws_on():
    """Checkpointing makes the state of the random generator an argument of the graphs."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: torch.nn.functional.dropout(x, 0.5) * x.exp(), x, use_reentrant=False)

    def steps() -> list[torch.Tensor]:
        torch.manual_seed(3)
        x, compiled, results = torch.ones(32, 32).to("tpu").requires_grad_(), torch.compile(function, backend="tpu"), []
        for _ in range(2):
            result = compiled(x)
            (gradient,) = torch.autograd.grad(result.sum(), x)
            results.append(result.detach().cpu())
            assert torch.equal(gradient.cpu() != 0, results[-1] != 0)
        return results

    drawn: list[list[torch.Tensor]] = []
    assert seen(lambda: drawn.append(steps())) == MISSED
    assert seen(lambda: drawn.append(steps())) == FOUND
    (first, second), again = drawn
    assert not torch.equal(first, second)
    torch.testing.assert_close(again, [first, second], rtol=0, atol=0)


def test_a_graph_in_parts_is_not_kept():
    """The line on which it is cut is told, and that is each process's own."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.as_strided_scatter(y, (2, 2), (1, 2))

    for _ in range(2):
        telling._told.clear()
        with pytest.warns(CompileWarning, match=rf"as_strided_scatter.* at {__file__}"):
            assert seen(lambda: same(function, randn(3, 3), randn(2, 2)))["saved"] == 0


def test_subclasses_are_not_kept():
    """Of what operators do with one, PyTorch's key has nothing."""
    inner = randn(3).to("tpu")
    subclass = TwoTensor(inner, inner.clone())
    assert seen(lambda: torch.compile(torch.sin, backend="tpu")(subclass)) == dict.fromkeys(FOUND, 0)


def test_operators_of_the_user_are_not_kept():
    """Their gradients may be written anew under the same name."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchtpu_tests.double(x).sin()

    with pytest.warns(CompileWarning, match="no lowering"):
        assert seen(lambda: same(function, randn(3, 2))) == dict.fromkeys(FOUND, 0)


def entry(directory: Path) -> Path:
    (found,) = (path for path in directory.glob(f"*{cache_entry.SUFFIX}") if header(path)["reason"] == "torch.compile")
    return found


def header(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return cache_entry.read_header(stream, path.stat().st_size)


def test_it_is_listed_like_a_program(directory: Path):
    seen(lambda: same(chain, randn(3, 4), randn(4, 3)))
    found = header(entry(directory))
    assert "tests/compile/compare.py:" in found["line"]  # whence the compiled function is called
    assert found["compile_s"] > 0


def test_a_damaged_entry_costs_a_warning_and_is_made_again(directory: Path):
    seen(lambda: same(chain, randn(3, 4), randn(4, 3)))
    path = entry(directory)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(CacheWarning, match="cut short") as told:
        assert seen(lambda: same(chain, randn(3, 4), randn(4, 3))) == MISSED
    assert len(told) == 1
    assert seen(lambda: same(chain, randn(3, 4), randn(4, 3))) == FOUND


def test_an_entry_that_cannot_be_unpickled_costs_a_warning(directory: Path):
    seen(lambda: same(chain, randn(3, 4), randn(4, 3)))
    path = entry(directory)
    with path.open("rb") as stream:
        key, about, _ = cache_entry.read_entry(stream, path.stat().st_size)
    path.write_bytes(cache_entry.encode(key, about, b"no pickle"))
    with pytest.warns(CacheWarning, match="could not be loaded and is traced again") as told:
        assert seen(lambda: same(chain, randn(3, 4), randn(4, 3))) == MISSED
    assert len(told) == 1


def test_without_a_cache_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch, directory: Path):
    monkeypatch.setattr(disk_cache, "of_process", lambda: None)
    assert seen(lambda: same(chain, randn(3, 4), randn(4, 3))) == dict.fromkeys(FOUND, 0)
    assert not list(directory.iterdir())


_TRAINING = """
import json, torch, torchtpu, torchtpu.inspect
from torch import nn
from torch._dynamo.utils import counters
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters())
step, x, losses = torch.compile(model, backend="tpu"), torch.linspace(-1, 1, 12).view(3, 4).to("tpu"), []
for _ in range(3):
    optimizer.zero_grad()
    loss = step(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps([losses, torchtpu.inspect.counters()["compiles"], counters["aot_autograd"]["autograd_cache_hit"]]))
"""


def test_a_second_process_trains_without_tracing_or_compiling(tmp_path: Path):
    def run() -> list[Any]:
        environment = {**os.environ, "TORCHTPU_CACHE": "1", "TORCHTPU_CACHE_DIR": str(tmp_path / "programs")}
        done = subprocess.run([sys.executable, "-c", _TRAINING], env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    first, second = run(), run()
    assert first[0] == second[0]
    assert first[1:] != second[1:] == [0, 1]


def test_a_graph_may_be_run_backward_twice():
    x = randn(3, 4, grad=True)
    ours = x.detach().to("tpu").requires_grad_()
    for device_x, result in ((x, x.tanh() * x), (ours, torch.compile(lambda x: x.tanh() * x, backend="tpu")(ours))):
        result[:, 0].sum().backward(retain_graph=True)
        result[:, 1].sum().backward()
        assert device_x.grad is not None
    torch.testing.assert_close(ours.grad.cpu(), x.grad)  # type: ignore[union-attr]


def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(5)
    return x + y


@pytest.mark.filterwarnings("ignore::torchtpu.compile.telling.CompileWarning")  # as_strided_scatter is a part of its own
@pytest.mark.parametrize("order", [("shared", "apart"), ("apart", "shared"), ("shared", "shared further on")])
def test_what_shares_memory_is_no_entry(order: tuple[str, ...]):
    """Where in each other's memory inputs lie is in the graph, and not in PyTorch's key."""
    def inputs(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
        base = torch.arange(12.0)
        return base[:4], {"shared": base[2:6], "apart": torch.arange(4.0), "shared further on": base[3:7]}[kind]

    for kind in order:
        torch._dynamo.reset()
        want = adds(*inputs(kind))
        if kind == "apart":
            given = [x.to("tpu") for x in inputs(kind)]
        else:
            base = torch.arange(12.0).to("tpu")
            given = [base[:4], base[2:6] if kind == "shared" else base[3:7]]
        torch.testing.assert_close(torch.compile(adds, backend="tpu")(*given).cpu(), want)


def test_other_threads_keep_theirs(directory: Path):
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    from torchtpu.compile.kept_graphs import keeping

    def found() -> list[Any]:
        return [entry for entry, *_ in AOTAutogradCache.iterate_over_candidates(True, None, "torchtpu's test")]

    elsewhere: list[list[Any]] = []
    with keeping(torch.fx.symbolic_trace(torch.nn.Identity()), []):
        AOTAutogradCache._write_to_local_cache("torchtpu's test", pickle.dumps("ours"))
        other = threading.Thread(target=lambda: elsewhere.append(found()))
        other.start()
        other.join()
        assert found() == ["ours"]
    assert elsewhere == [[]]
    assert found() == []
    assert len(list(directory.iterdir())) == 1
