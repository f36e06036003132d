"""``torchtpu.inspect.explain()``: what is found, at which line, and what is left out."""

from __future__ import annotations

import inspect
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchtpu.inspect
from torchtpu.compile.telling import CompileWarning
from torchtpu.inspect.report import Finding
from torchtpu.runtime import transfers


def here(offset: int = 0) -> str:
    """The line of the caller, or one ``offset`` lines below it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def findings(kind: str) -> list[Finding]:
    return [finding for finding in torchtpu.inspect.explain().findings if finding.kind == kind]


def train(zero_first: bool, sizes: tuple[int, ...], read: Callable[[torch.Tensor], Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for size in sizes:
        x = torch.ones(size, 8).to("tpu")
        if zero_first:
            optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if not zero_first:
            optimizer.zero_grad()
        read(loss)


def test_good_loop_is_one_line() -> None:
    train(False, (4, 4, 4, 4), torch.Tensor.detach)
    torch.tpu.synchronize()
    text = str(torchtpu.inspect.explain())
    assert "\n" not in text
    assert text.startswith("torchtpu: nothing to improve in ")
    assert "0 loaded from disk" in text


def test_last_batch_is_one_more_program() -> None:
    line = here(1)
    train(True, (4, 4, 3, 4, 3), lambda loss: loss.item())
    (found,) = findings("compiles")
    assert found.line == line
    assert found.text == "compiled one more program"
    (detail,) = found.details
    assert "aten::addmm (operator 0 of " in detail
    assert "got mat1: float32[3, 8] where it was float32[4, 8]" in detail
    assert "drop_last=True" in found.suggestion
    records = torchtpu.inspect.programs()
    assert found.lost_s == pytest.approx(records[-1].compile_s)
    counted = torchtpu.inspect.explain().lines[line]
    assert counted.num_programs["item"] == 3  # the first step makes the momentum
    assert counted.num_launches["item"] == 5
    assert counted.reads == {"item": 5}


def test_gradients_kept_over_a_step() -> None:
    line = here(1)
    train(True, (5, 5, 5), lambda loss: loss.item())
    (found,) = findings("gradients")
    assert found.line == line
    num_bytes = 4 * (8 * 16 + 16 + 16 * 4 + 4)
    record = torchtpu.inspect.programs()[-1]
    assert (record.num_kept_gradients, record.kept_gradients_bytes) == (4, num_bytes)
    assert "zero_grad()" in found.suggestion


def test_gradients_that_a_step_still_needs_are_not_told() -> None:
    model = nn.Linear(6, 6).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 6).to("tpu")).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
    assert findings("gradients") == []


def test_reads_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    download = transfers.download

    def slow(*given: Any) -> None:
        time.sleep(0.05)
        download(*given)

    monkeypatch.setattr(transfers, "download", slow)
    x = torch.ones(3).to("tpu")
    torchtpu.inspect.reset_counters()
    for _ in range(4):
        (x + 1).sum().item()
    line = here(-1)
    (found,) = findings("reads")
    assert found.line == line
    assert 0.2 <= found.lost_s < torchtpu.inspect.explain().elapsed_s
    assert "in 4 reads (item 4x)" in found.text


def test_reads_that_leave_the_device_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    download = transfers.download
    monkeypatch.setattr(transfers, "download", lambda *given: (time.sleep(0.05), download(*given)))
    x = torch.ones(3).to("tpu")
    torchtpu.inspect.reset_counters()
    for _ in range(2):
        for _ in range(8):
            y = (x + 1).sum()
            torch.tpu.synchronize()
        y.item()
    assert torchtpu.inspect.explain().lines[here(-1)].wait_s >= 0.1
    assert findings("reads") == []


def test_one_read_is_no_finding() -> None:
    torch.ones(7).to("tpu").exp().sum().item()
    assert findings("reads") == []


def test_reads_for_the_sake_of_a_shape_have_their_own_advice() -> None:
    x = torch.ones(64).to("tpu")
    for _ in range(2):
        x.nonzero()
    found = torchtpu.inspect.explain().lines[here(-1)]
    assert found.reads == {"aten::nonzero": 2}
    assert found.wait_s > 0


def test_fallback_is_timed_without_its_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHTPU_FALLBACK", "silent")
    x = torch.eye(4).to("tpu")
    start = time.perf_counter()
    torch.linalg.eig(x * 2)
    elapsed_s, line = time.perf_counter() - start, here(-1)
    (found,) = findings("fallback")
    assert found.line == line
    assert "ran aten::linalg_eig on the CPU 1x" in found.text
    assert 0 < found.lost_s <= elapsed_s - torchtpu.inspect.counters()["compile_s"]
    assert "torchtpu where aten::linalg_eig" in found.suggestion
    assert torchtpu.inspect.counters()["fallbacks"] == {"aten::linalg_eig": 1}


def test_fallback_that_raises_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHTPU_FALLBACK", "silent")
    with pytest.raises(RuntimeError):
        torch.linalg.eig(torch.full((2, 2), torch.nan).to("tpu"))
    x = torch.ones(3).to("tpu")
    line = here(1)
    x.exp().sum().item()
    assert torchtpu.inspect.explain().lines[line].wait_s > 0  # not taken for a part of the fallback


def test_mode_that_cuts_programs() -> None:
    with torch.tpu.set_eager_mode("strict"):
        x = torch.ones(3).to("tpu")
        x.exp()
    (found,) = findings("boundary")
    assert found.line == here(-2)
    assert "strict mode" in found.text


def test_costliest_line_first_and_machine_readable() -> None:
    train(False, (4, 3), lambda loss: loss.item())
    train(True, (6, 6, 6), lambda loss: loss.item())
    report = torchtpu.inspect.explain()
    lost = [finding.lost_s for finding in report.findings]
    assert lost == sorted(lost, reverse=True)
    loaded = json.loads(json.dumps(report.as_dict()))
    assert loaded["findings"][0]["lost_s"] == lost[0]
    assert loaded["totals"]["compiles"] == torchtpu.inspect.counters()["compiles"]
    text = str(report)
    assert text.count("\n     -> ") == len(report.findings)


def test_failed_guards_of_a_module_of_pytorch_are_told_at_the_line_that_calls_it() -> None:
    module = torch.compile(torch.nn.Sequential(torch.nn.ReLU()), backend="eager", dynamic=False)
    torchtpu.inspect.reset_counters()
    for size in (3, 4):
        module(torch.ones(size))
    assert [found.line for found in findings("guards")] == [here(-1)]


def test_a_function_that_is_given_up_is_told() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        with torch.no_grad():
            try:
                torch._dynamo.graph_break()
            finally:
                y = y + 1
        return y

    torchtpu.inspect.reset_counters()
    with pytest.warns(CompileWarning, match=r"the function function at .*test_explain\.py:\d+ is not part .*graph_break"):
        torch.compile(function, backend="tpu")(torch.ones(3).to("tpu"))
    (found,) = findings("graph break")
    assert found.line == f"{__file__}:{function.__code__.co_firstlineno}"
    assert "gave up function, which runs as Python does: Call to `torch._dynamo.graph_break()`" in found.text
    torchtpu.inspect.reset_counters()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch._dynamo.reset()
        torch.compile(function, backend="eager")(torch.ones(3))  # another device's business


def test_torch_compile_tells_graph_breaks_and_failed_guards() -> None:
    @torch.compile(backend="eager", dynamic=False)
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    torchtpu.inspect.reset_counters()
    for size in (3, 4):
        function(torch.ones(size))
    code = function.__wrapped__.__code__ if hasattr(function, "__wrapped__") else function._torchdynamo_orig_callable.__code__
    first = code.co_firstlineno
    breaks = [found for found in findings("graph break") if found.line == f"{__file__}:{first + 3}"]
    assert len(breaks) == 1
    guards = [found for found in findings("guards") if found.line == f"{__file__}:{first}"]
    assert len(guards) == 1
    assert "size mismatch" in guards[0].details[0]
    torchtpu.inspect.reset_counters()
    assert findings("graph break") == findings("guards") == []
