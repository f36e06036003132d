"""What was measured of every entry of PyTorch's operator database, for ``docs/coverage.md``: dtypes, gradients, a TPU's compiler.

``python -m docs.pass_rates`` folds reports into ``docs/entries.json``; an entry's dtype that a report has replaces the kept one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.tables import markdown
from docs import operators
from tests.opinfo.known import KNOWN
from tests.opinfo.outcomes import FAILURES

if TYPE_CHECKING:
    from tests.opinfo.outcomes import Record

ENTRIES = Path(__file__).parent / "entries.json"
SHORT = {
    "float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "complex64": "c64", "complex128": "c128",
    "complex32": "c32", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "bool": "bool"}
_ORDER = {short: place for place, short in enumerate(SHORT.values())}
# Groups of outcomes within which a dtype is in one only, worst first; gradients are a group of their own.
_RUN = ("fails", "differs", "passes")
_COMPILED = ("refused", "in part", "compiles", "nothing to compile")
_COMPILE_OUTCOMES = {
    "compile-pass": "compiles", "compile-part": "in part", "compile-none": "nothing to compile", "known": "refused"}
# Entries with such names are a family; others belong to the file of their rule.
_PREFIXES = ("fft.", "linalg.", "masked.", "nn.functional.", "signal.windows.", "special.", "_foreach_")
_HEADERS = ("entry", "how", "as on the CPU", "differs", "gradients", "error, f32", "compiles for v5e")

Entry = dict[str, str]  # "aten": its operator; outcome -> short names of dtypes
Entries = dict[str, Entry]


def kept() -> Entries:
    """The committed entries."""
    return json.loads(ENTRIES.read_text()) if ENTRIES.exists() else {}


def write(entries: Entries) -> None:
    """One line an entry, so that a difference can be read."""
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(entries.items()))
    ENTRIES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def fold(entries: Entries, records: Iterable[tuple[str, str, str, str, Record]]) -> Entries:
    """With newer records: (entry, its ATen operator, dtype, status, record). Of several about one dtype the worst counts."""
    groups: dict[tuple[str, str, tuple[str, ...]], str] = {}
    atens, gradients = {}, set()
    for name, aten, dtype, status, record in records:
        atens[name] = aten
        compiled = record.options.startswith("compile=")
        outcome = _compiled(status) if compiled else _ran(status)
        if outcome:
            group = _COMPILED if compiled else _RUN
            before = groups.get((name, dtype, group), group[-1])
            groups[name, dtype, group] = min(before, outcome, key=group.index)
        if record.gradients:
            gradients.add((name, dtype))
    result = {name: dict(entry) for name, entry in entries.items()}
    for (name, dtype, group), outcome in groups.items():
        entry = result.setdefault(name, {})
        entry["aten"] = atens[name]
        for other in group:
            _remove(entry, other, SHORT[dtype])
        _add(entry, outcome, SHORT[dtype])
    for name, dtype in gradients:
        if (name, dtype, _RUN) in groups:  # not so of layouts that the device has not
            _add(result[name], "gradients", SHORT[dtype])
    return result


def _ran(status: str) -> str:
    return "fails" if status in FAILURES else {"pass": "passes", "known": "differs"}.get(status, "")


def _compiled(status: str) -> str:
    return "refused" if status in FAILURES else _COMPILE_OUTCOMES.get(status, "")


def _add(entry: Entry, outcome: str, dtype: str) -> None:
    entry[outcome] = " ".join(sorted({*entry.get(outcome, "").split(), dtype}, key=_ORDER.__getitem__))


def _remove(entry: Entry, outcome: str, dtype: str) -> None:
    left = [name for name in entry.pop(outcome, "").split() if name != dtype]
    if left:
        entry[outcome] = " ".join(left)


def tables(found: list[operators.Operator], errors: dict[str, str], reasons: dict[str, int]) -> Iterator[str]:
    """A section for each family. ``errors``: in float32, by operator. ``reasons``: numbers of the known deviations."""
    how = {packet: (kinds, files) for packet, kinds, files in operators.by_packet(found)}
    families: dict[str, list[tuple[str, ...]]] = {}
    for name, entry in kept().items():
        kinds, files = how.get(entry["aten"], ("other operators", ""))
        error = errors.get(name, errors.get(entry["aten"], ""))
        row = (
            f"`{name}`", kinds, entry.get("passes", ""), _deviations(name, entry, reasons), entry.get("gradients", ""), error,
            _compiles(entry))
        families.setdefault(_family(name, kinds, files), []).append(row)
    for family, rows in sorted(families.items()):
        yield from (f"### {family}", "", markdown(_HEADERS, rows), "")


def _deviations(name: str, entry: Entry, reasons: dict[str, int]) -> str:
    listed = {reasons[why] for (key, _, variant), why in KNOWN.items() if key == name and variant != "compile"}
    numbers = " ".join(f"({number})" for number in sorted(listed))
    fails = f"fails: {entry['fails']}" if "fails" in entry else ""
    return " ".join(part for part in (fails, entry.get("differs", ""), numbers) if part)


def _compiles(entry: Entry) -> str:
    refused = " ".join(name for name in entry.get("refused", "").split() if name != "c128")  # said once, above the tables
    parts = {"": entry.get("compiles", ""), "in part: ": entry.get("in part", ""), "refused: ": refused}
    return "; ".join(f"{label}{names}" for label, names in parts.items() if names)


def _family(name: str, kinds: str, files: str) -> str:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    if prefix:
        return f"`{prefix.rstrip('.')}`"
    return f"`rules/{files}`" if files and "," not in files else "Several files of rules" if files else kinds.capitalize()
