"""What was compiled, in the structured trace of PyTorch's own compiler (``TORCH_TRACE``), for tlparse to show."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from torch._logging import _internal as logging

from torchtpu.graph.program import RecordedProgram
from torchtpu.runtime.counters import ProgramRecord

_MAX_TEXT_BYTES = 16 << 20


def stablehlo(program: RecordedProgram, stage: Any) -> None:
    """The program's StableHLO, cut at 16 MiB; nothing is made of it unless a trace is being written."""
    _artifact(f"torchtpu_stablehlo_{program.key}", "string", lambda: _cut(stage.as_text()))


def program(record: ProgramRecord, recorded: RecordedProgram) -> None:
    """What is known of a program that was compiled or loaded: key, line, reason, operators, seconds, bytes."""
    def payload() -> str:
        return json.dumps(asdict(record) | {"ops": [node.lowered.op for node in recorded.nodes]}, indent=1)

    _artifact(f"torchtpu_program_{record.key}", "json", payload)


def _artifact(name: str, encoding: str, payload: Callable[[], str]) -> None:
    if _is_on():
        logging.trace_structured(
            "artifact", lambda: {"name": name, "encoding": encoding}, payload_fn=payload, expect_trace_id=False,
            record_logging_overhead=False)


def _is_on() -> bool:
    """PyTorch's handler is there from the start, and removes itself at its first record if it has no directory."""
    handlers = (handler for handler in logging.trace_log.handlers if isinstance(handler, logging.LazyTraceHandler))
    return any(handler.root_dir is not None for handler in handlers)


def _cut(text: str) -> str:
    if len(text) <= _MAX_TEXT_BYTES:
        return text
    end = text.rfind("\n", 0, _MAX_TEXT_BYTES)
    return f"{text[:end]}\n// {len(text) - end} characters more"
