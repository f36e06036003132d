"""What ``torch.compile`` tells of itself: graph breaks and failed guards. Asks only a Dynamo that is loaded already."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from typing import Any

from torchtpu.inspect.report import Finding
from torchtpu.runtime.user_code import is_library

_FRAME = re.compile(r"Line: (?P<line>\d+), Name: .*, Filename: (?P<file>.*)")  # in CompilationMetrics.stack_trace
_MAX_REASON = 240  # characters; the whole of it is in TORCH_LOGS=graph_breaks,recompiles
_last_forgotten: Any = None  # by itself, not by its place: torch._dynamo.reset() empties the list


def _utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def forget_breaks() -> None:
    """Leave the graph breaks so far out of reports: Dynamo does not say when they were."""
    global _last_forgotten
    _last_forgotten = _utils().graph_break_reasons[-1] if _utils() and _utils().graph_break_reasons else None


def findings(elapsed_s: float) -> list[Finding]:
    """Graph breaks since they were last forgotten, and what else was of the last ``elapsed_s`` seconds, by user line."""
    since_s = time.time() - elapsed_s
    return [] if _utils() is None else [*_graph_breaks(), *_given_up(since_s), *_recompilations(since_s)]


def _graph_breaks() -> list[Finding]:
    reasons = list(_utils().graph_break_reasons)
    start = next((i + 1 for i, reason in enumerate(reasons) if reason is _last_forgotten), 0)
    broken = Counter((_line(reason.user_stack), _short(reason.reason)) for reason in reasons[start:])
    return [
        Finding("graph break", line, 0.0, f"torch.compile broke its graph {_times(count)}: {reason}",
                "Move this call out of the compiled function, or write it with operators of tensors.")
        for (line, reason), count in broken.items()]


def _line(stack: list[Any]) -> str:
    return f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "unknown"


def _given_up(since_s: float) -> list[Finding]:
    """Functions of which Dynamo compiled nothing; it counts no graph break for them."""
    failed = [m for m in _utils().get_compilation_metrics() if m.fail_reason and (m.start_time_us or 0) / 1e6 >= since_s]
    return [
        Finding("graph break", _compiled_line(m), (m.duration_us or 0) / 1e6,
                f"torch.compile gave up {m.co_name}, which runs as Python does: {_short(m.fail_reason)}",
                "Take this out of the compiled function, or compile a function that it is not part of.")
        for m in failed]


def _recompilations(since_s: float) -> list[Finding]:
    by_line: dict[str, list[Any]] = {}
    for metrics in _utils().get_compilation_metrics():
        if metrics.recompile_reason and (metrics.start_time_us or 0) / 1e6 >= since_s:
            by_line.setdefault(_compiled_line(metrics), []).append(metrics)
    return [
        Finding("guards", line, sum((m.duration_us or 0) / 1e6 for m in all_metrics),
                f"torch.compile traced {all_metrics[0].co_name} again {_times(len(all_metrics))}, because a guard failed",
                "Keep what the guard names the same, or mark the size with torch._dynamo.mark_dynamic.",
                tuple(_short(m.recompile_reason) for m in all_metrics))
        for line, all_metrics in by_line.items()]


def _compiled_line(metrics: Any) -> str:
    """Where the compiled function begins, or the user's line that calls it: of a module of PyTorch, it is a wrapper of Dynamo's."""
    if is_library(metrics.co_filename):
        for frame in reversed(metrics.stack_trace or []):
            found = _FRAME.fullmatch(frame)
            if found is not None and not is_library(found["file"]):
                return f"{found['file']}:{found['line']}"
    return f"{metrics.co_filename}:{metrics.co_firstlineno}"


def _short(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + " ..."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
