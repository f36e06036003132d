"""Compiling samples for a chip: what compiles, what does not, and what no program holds are told apart."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.opinfo import workers
from tests.opinfo.case import Case
from tests.opinfo.compiling import chosen
from tests.opinfo.database import Task
from tests.opinfo.options import Checks, parse

CHECKS = Checks(grad=True, mode="fused", topology="v5e")
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu, which holds the compiler, is not installed")


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Records of compiling are those of one topology; bad arguments leave nothing to compile."""
    checks = parse(["--compile", "v5e"]).checks
    assert (checks, checks.key) == (CHECKS, "compile=v5e fallback=warn")
    with pytest.raises(SystemExit):
        parse(["--compile", "v5e", "--error-inputs"])
    assert "--compile takes no --error-inputs" in capsys.readouterr().err


def test_which_sample_is_taken() -> None:
    """The largest by all tensors among its arguments, the first of equals, and none that is huge if there is another."""
    sizes = ((), (2, 3), (3, 2), (300, 300), (400, 300))
    made = [Case(str(size), "fn", torch.add, ([torch.ones(size)], torch.ones(1))) for size in sizes]
    assert chosen(made) is made[1]
    assert chosen(reversed(made[3:])) is made[3]
    assert chosen([]) is None


def _serve_and_abort(pipe: Any, checks: Checks, log: str) -> None:
    pipe.send(None)
    pipe.recv()
    Path(log).write_text("some words\nF1130 21:35:03.4 13105 rewriter.cc:2101] Unsupported CVT\n*** Check failure ***\n")
    os._exit(6)


def test_a_compiler_that_aborts_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs one task, and its fatal line is kept."""
    monkeypatch.setattr(workers, "serve", _serve_and_abort)
    [(_, record)] = workers.Pool(CHECKS, jobs=1, timeout_s=60).run([Task("ops", "add", "float32")])
    assert record.failures() == [("compile", "crash")]
    assert record.messages == [("compile", "crash", "exit code 6: F1130 21:35:03.4 13105 rewriter.cc:2101] Unsupported CVT")]


@pytest.mark.slow
@needs_libtpu
def test_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, as the compiler may end it."""
    monkeypatch.setenv("TORCHTPU_FALLBACK", "silent")
    wanted = {
        ("softmax", "float32"): "compile-pass", ("matmul", "int64"): "compile-pass", ("sort", "bfloat16"): "compile-pass",
        ("nonzero", "float32"): "compile-part", ("linalg.eigvals", "float32"): "compile-part",
        ("view_as", "float32"): "compile-none", ("add", "complex128"): "unsupported",
    }
    tasks = [Task("ops", *key) for key in wanted]
    came = {(task.entry, task.dtype): record.status for task, record in workers.Pool(CHECKS, 1, 300).run(tasks)}
    assert came == wanted
