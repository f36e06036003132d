"""What docs/coverage.md is made of: operators that stay on the CPU, rows of pass rates, deviations stated in docstrings."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from docs import entries, generate_coverage, operators, pass_rates
from tests.opinfo.database import Task
from tests.opinfo.known import KNOWN
from tests.opinfo.outcomes import Record
from tests.opinfo.report import Report
from torchtpu.graph import decompose
from torchtpu.graph.cpu_only import CPU_ONLY
from torchtpu.graph.overloads import overload
from torchtpu.inspect.where import load_all_rules
from torchtpu.rules import find, find_dynamic

load_all_rules()


def test_few_operators_stay_on_the_cpu() -> None:
    assert len(CPU_ONLY) <= 15


@pytest.mark.parametrize("key", CPU_ONLY)
def test_operator_of_the_cpu_is_computed_by_nothing_else(key: str) -> None:
    assert find(key) is None and find_dynamic(key) is None, "has a rule: take its line out of CPU_ONLY"
    assert not decompose.exists(overload(key)), "PyTorch decomposes it: take its line out of CPU_ONLY"
    assert not operators.is_computed(key)
    assert CPU_ONLY[key].strip()


def test_kinds_of_some_operators() -> None:
    kinds = {operator.key: operator.kind for operator in operators.operators()}
    expected = {
        "aten::mm": "rule", "aten::nonzero": "rule", "aten::view": "view", "aten::empty_strided": "core",
        "aten::pixel_shuffle": "decomposition", "aten::dist": "composite", "aten::linalg_eig": "CPU only"}
    assert {key: kinds[key] for key in expected} == expected
    assert not {"aten::add_.Tensor", "aten::matmul", "aten::_coalesce", "aten::cudnn_convolution"} & set(kinds)


def test_deviation_ends_at_an_empty_line_or_label() -> None:
    text = "schema\n\nDiffers: of equal values\n    the first.\nSource: a book\n\nDiffers, it does not."
    assert generate_coverage._paragraph(text, "Differs:") == "of equal values the first."
    assert generate_coverage._paragraph("schema", "Differs:") == ""


def _report(path: Path, counts: dict[str, dict[str, int]], options: str = "fn samples=all strict fallback=warn") -> Path:
    records = {}
    for entry, outcomes in counts.items():
        fallbacks = {"aten::linalg_eig": 1} if "eig" in entry else {}
        records[Task("ops", entry, "float32")] = Record(options, {"fn": Counter(outcomes)}, fallbacks=fallbacks)
    Report(path, records).save()
    return path


def test_report_becomes_a_row(tmp_path: Path) -> None:
    counts = {
        "add": {"pass": 3}, "mul": {"pass": 2, "fail": 1}, "linalg.eig": {"pass": 2}, "sub": {"cpu-refuses": 1},
        "div": {"strides": 1}}
    row, = pass_rates.rows([_report(tmp_path / "a.json", counts)])
    numbers = (row.suite, row.dtype, row.entries, row.passing, row.known, row.samples, row.fallbacks)
    assert numbers == ("ops", "float32", 5, 2, 0, 10, 1)
    assert (row.failing, row.neither) == ({"fail": 1, "strides": 1}, {"cpu-refuses": 1})
    assert row.in_database > 500


def test_newest_record_counts(tmp_path: Path) -> None:
    old = _report(tmp_path / "a.json", {"add": {"fail": 1}, "mul": {"pass": 1}})
    new = _report(tmp_path / "b.json", {"add": {"pass": 1}})
    os.utime(old, (1e9, 1e9))
    row, = pass_rates.rows([old, new])
    assert (row.entries, row.passing, row.failing) == (2, 2, {})


def test_smaller_run_does_not_replace_a_row(tmp_path: Path) -> None:
    row, = pass_rates.rows([_report(tmp_path / "a.json", {"add": {"pass": 1}, "mul": {"pass": 1}})])
    smaller = dataclasses.replace(row, entries=1, passing=1)
    assert pass_rates.merge([row], [smaller])[0] == [row]
    assert "left out" in pass_rates.merge([row], [smaller])[1][0]
    again = dataclasses.replace(row, passing=1, failing={"fail": 1})
    assert pass_rates.merge([row], [again]) == ([again], [])


def test_rates_are_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_rates, "RATES", tmp_path / "coverage.json")
    monkeypatch.setattr(entries, "ENTRIES", tmp_path / "entries.json")
    assert "Not measured." in generate_coverage._rates()
    assert pass_rates.main([str(_report(tmp_path / "a.json", {"add": {"pass": 3}}))]) == 0
    assert json.loads((tmp_path / "coverage.json").read_text())["rows"][0]["samples"] == 3
    text = "\n".join(generate_coverage._rates())
    assert "`fn samples=all strict fallback=warn`:" in text and "| ops " in text
    assert entries.kept() == {"add": {"aten": "add", "passes": "f32"}}


def test_an_entry_has_each_dtype_once() -> None:
    def record(options: str = "fn samples=all strict fallback=warn", gradients: int = 0) -> Record:
        return Record(options, gradients=gradients)

    compiled = record("compile=v5e fallback=warn")
    old = {"abs": {"aten": "abs", "passes": "f32 i64", "compiles": "f32"}}
    new = entries.fold(old, [
        ("abs", "abs", "float32", "strides", record()), ("abs", "abs", "float32", "pass", record()),
        ("abs", "abs", "bfloat16", "pass", record(gradients=2)), ("abs", "abs", "float32", "known", compiled),
        ("abs", "abs", "bool", "cpu-refuses", record())])
    assert new == {"abs": {"aten": "abs", "passes": "bf16 i64", "fails": "f32", "refused": "f32", "gradients": "bf16"}}


def test_the_table_of_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "kept", lambda: {
        "abs": {"aten": "abs", "passes": "f32", "fails": "i64", "compiles": "f32", "refused": "f64 c128"},
        "linalg.cond": {"aten": "linalg_cond", "differs": "f32"}})
    found = [operators.Operator("aten::abs", "rule", "elementwise.py")]
    text = "\n".join(entries.tables(found, {"abs": "0 / 0"}, dict.fromkeys(KNOWN.values(), 7)))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["`abs`", "rule", "f32", "fails: i64", "", "0 / 0", "f32; refused: f64"] in cells
    assert ["`linalg.cond`", "other operators", "", "f32 (7)", "", "", ""] in cells
    assert "### `rules/elementwise.py`" in text and "### `linalg`" in text
