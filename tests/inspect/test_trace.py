"""What is written under TORCH_TRACE, read record by record as tlparse does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = """
import torch
x = torch.ones(3, 4).to("tpu")
print((x + 1).exp().sum().item())
"""
# Severity with date, time, process, source; then one line of JSON. A payload follows, each of its lines behind a tab.
RECORD = re.compile(r"V\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [^:]+:\d+\] (?P<metadata>\{.*\})")


def records(text: str) -> list[tuple[dict[str, Any], str]]:
    """Metadata and payload of each record; a line that is neither is an error, and so is a payload of another hash."""
    result: list[tuple[dict[str, Any], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("\t"):
            result[-1][1].append(line[1:])
        else:
            found = RECORD.fullmatch(line)
            assert found, line
            result.append((json.loads(found["metadata"]), []))
    for metadata, lines in result:
        if "has_payload" in metadata:
            assert hashlib.md5("\n".join(lines).encode(), usedforsecurity=False).hexdigest() == metadata["has_payload"]
    return [(metadata, "\n".join(lines)) for metadata, lines in result]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Encoding and payload by name."""
    folder = tmp_path_factory.mktemp("trace")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"TORCH_TRACE": str(folder / "logs"), "TORCHTPU_CACHE": "0"}
    subprocess.run([sys.executable, script], env=environment, timeout=120, check=True)
    (log,) = Path(folder / "logs").iterdir()
    found = [(m["artifact"], payload) for m, payload in records(log.read_text()) if "artifact" in m]
    return {artifact["name"]: (artifact["encoding"], payload) for artifact, payload in found}


def test_each_program_has_its_text_and_its_facts(artifacts: dict[str, tuple[str, str]]) -> None:
    ours = {name: value for name, value in artifacts.items() if name.startswith("torchtpu_")}
    (program,) = [name for name in ours if name.startswith("torchtpu_program_")]
    encoding, payload = ours[program]
    facts = json.loads(payload)
    assert encoding == "json"
    assert facts["ops"] == ["aten::add.Tensor", "aten::exp", "aten::sum.dim_IntList"]
    assert facts["line"].endswith("script.py:4")
    assert (facts["reason"], facts["source"], facts["difference"]["kind"]) == ("item", "compiled", "new")
    assert facts["compile_s"] > 0
    assert facts["memory"]["argument_bytes"] >= 48
    encoding, text = ours[f"torchtpu_stablehlo_{facts['key']}"]
    assert encoding == "string"
    assert "stablehlo.exponential" in text


def test_nothing_is_made_where_no_trace_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchtpu.runtime import trace

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a record was made")

    monkeypatch.setattr(trace.logging, "trace_structured", refuse)
    torch.ones(13).to("tpu").erf().cpu()


def test_long_texts_are_cut_at_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchtpu.runtime import trace

    monkeypatch.setattr(trace, "_MAX_TEXT_BYTES", 10)
    assert trace._cut("first\nsecond\nthird") == "first\n// 13 characters more"
    assert trace._cut("short") == "short"
