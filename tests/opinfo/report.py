"""The report: kept on disk, resumed, summarised, and compared with another one."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.opinfo.database import Task
from tests.opinfo.known import KNOWN, Key, known
from tests.opinfo.outcomes import FAILURES, MEANING, Record

_SAVE_S = 5
_COLUMNS = ("known", *MEANING)


@dataclass
class Report:
    """Records by task, and the file that they are kept in."""

    path: Path | None = None
    records: dict[Task, Record] = field(default_factory=dict)
    _saved: float = 0.0

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read a report."""
        tasks = json.loads(path.read_text())["tasks"]
        return cls(path, {Task(*key.split(" ")): Record.from_dict(fields) for key, fields in tasks.items()})

    def add(self, task: Task, record: Record) -> None:
        """Keep a record; on disk, too, every few seconds."""
        self.records[task] = record
        if time.monotonic() - self._saved > _SAVE_S:
            self.save()

    def save(self) -> None:
        """Write the file beside and rename it, so that there is a whole one at any time."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(json.dumps({"tasks": {t.key: self.records[t].as_dict() for t in self.ordered()}}, indent=1))
        os.replace(beside, self.path)
        self._saved = time.monotonic()

    def ordered(self) -> list[Task]:
        """The tasks by name."""
        return sorted(self.records, key=lambda task: task.key)

    def without(self, options: str) -> int:
        """Drop the records of other checks, and say how many there were."""
        others = [task for task, record in self.records.items() if record.options != options]
        for task in others:
            del self.records[task]
        return len(others)

    def status(self, task: Task) -> str:
        """The worst outcome; ``known`` if every failure is listed."""
        record = self.records[task]
        if record.status not in FAILURES:
            return record.status
        unlisted = [outcome for variant, outcome in record.failures() if not known(task.entry, task.dtype, variant)]
        return min(unlisted, key=_COLUMNS.index) if unlisted else "known"

    def failed(self) -> list[Task]:
        """Tasks with a failure that is not listed."""
        return [task for task in self.ordered() if self.status(task) in FAILURES]

    def stale(self) -> list[Key]:
        """Lines of the list that nothing failed under, though something ran."""
        ran: set[Key] = set()
        used: set[Key | None] = set()
        for task, record in self.records.items():
            used |= {known(task.entry, task.dtype, variant) for variant, _ in record.failures()}
            ran |= {key for variant in record.counts if (key := known(task.entry, task.dtype, variant))}
        return [key for key in KNOWN if key in ran - used]


def summary(report: Report) -> Iterator[str]:
    """Tables of entries and of samples by dtype and outcome, and the fallbacks."""
    by_dtype: dict[str, list[Task]] = {}
    for task in report.ordered():
        by_dtype.setdefault(task.dtype, []).append(task)
    entries = {dtype: Counter(report.status(task) for task in tasks) for dtype, tasks in by_dtype.items()}
    outcomes = {dtype: sum((report.records[t].outcomes for t in tasks), Counter()) for dtype, tasks in by_dtype.items()}
    for title, rows in (("entries", entries), ("samples", outcomes)):
        yield from ("", *_table(title, rows))
    records = report.records.values()
    numbers = {
        "gradients compared": sum(r.gradients for r in records), "random, metadata only": sum(r.random for r in records),
        "passed by float64": sum(r.refereed for r in records), "programs compiled": sum(r.compiles for r in records),
        "seconds of work": round(sum(r.seconds for r in records)),
    }
    yield "\n" + "; ".join(f"{name}: {number}" for name, number in numbers.items())
    fallbacks = sum((Counter(r.fallbacks) for r in records), Counter())
    if fallbacks:
        yield f"fallbacks, {len(fallbacks)} operators: " + ", ".join(f"{op} {n}" for op, n in fallbacks.most_common())
    yield from (f"stale: {' '.join(key)} passes, and tests/opinfo/known.py says: {KNOWN[key]}" for key in report.stale())


def _table(title: str, rows: dict[str, Counter[str]]) -> Iterator[str]:
    columns = [c for c in _COLUMNS if any(row[c] for row in rows.values())]
    if len(rows) > 1:
        rows = rows | {"all": sum(rows.values(), Counter())}
    yield f"{title:14}" + "".join(f"{name:>{len(name) + 2 if len(name) > 6 else 8}}" for name in ("total", *columns))
    for name, row in rows.items():
        cells = [("total", row.total()), *((c, row[c]) for c in columns)]
        yield f"{name:14}" + "".join(f"{n:>{len(c) + 2 if len(c) > 6 else 8}}" for c, n in cells)


def failures(report: Report) -> Iterator[str]:
    """The messages of all failures, by entry."""
    for task in report.failed():
        yield f"\n{task.entry} {task.dtype}: {report.status(task)}"
        yield from (f"  {outcome}: {text}" for _, outcome, text in report.records[task].messages if outcome in FAILURES)


def changes(before: Report, now: Report) -> Iterator[str]:
    """Tasks with another status than before, those that fail now first."""
    both = [task for task in now.ordered() if task in before.records]
    changed = [task for task in both if before.status(task) != now.status(task)]
    for task in sorted(changed, key=lambda task: now.status(task) not in FAILURES):
        message = next((text for _, outcome, text in now.records[task].messages if outcome == now.status(task)), "")
        yield f"{task.key}: {before.status(task)} -> {now.status(task)} {message[:200]}".rstrip()
    yield f"{len(changed)} of {len(both)} tasks changed; {_only(now, before)} only now, {_only(before, now)} only before"


def _only(one: Report, other: Report) -> int:
    return sum(task not in other.records for task in one.records)


def lines(parts: Iterable[Iterator[str]]) -> str:
    """All lines as one text."""
    return "\n".join(line for part in parts for line in part)
