"""Fold the reports of PyTorch's operator databases (``python -m tests.opinfo --json FILE``) into ``docs/coverage.json``.

    python -m docs.pass_rates                          # all of build/opinfo/
    python -m docs.pass_rates build/opinfo/ops.json    # only this one

They go into ``docs/entries.json`` as well, entry by entry (docs/entries.py).

One row for each database, dtype and set of checks; of an entry that is in several reports the newest counts. A row replaces the
kept one, unless it is about fewer entries: then the kept one stays and that is said. The date is that of the report's file.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from docs import entries

if TYPE_CHECKING:
    from tests.opinfo.database import Task
    from tests.opinfo.outcomes import Record

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "build" / "opinfo"
RATES = Path(__file__).parent / "coverage.json"


@dataclass(frozen=True)
class Row:
    """What came of one database in one dtype under one set of checks; all numbers but ``samples`` count entries.

    ``in_database``: entries that take this dtype. ``known``: every failure is listed in tests/opinfo/known.py. ``neither``: by
    outcome, such as samples that the CPU refuses. ``fallbacks``: ran on the CPU in part.
    """

    suite: str
    dtype: str
    checks: str
    in_database: int
    entries: int
    passing: int
    known: int
    failing: dict[str, int]
    neither: dict[str, int]
    samples: int
    fallbacks: int
    date: str
    torch: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What a later row replaces."""
        return self.suite, self.checks, self.dtype


def kept() -> list[Row] | None:
    """The committed rows, or None if nothing was measured."""
    return [Row(**fields) for fields in json.loads(RATES.read_text())["rows"]] if RATES.exists() else None


def newest(paths: Iterable[Path]) -> Iterator[tuple[str, Task, Record]]:
    """The records of some reports, and the date of each; of the same task under the same checks the newest."""
    from tests.opinfo.report import Report

    taken: set[tuple[Task, str]] = set()
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
        date = datetime.datetime.fromtimestamp(path.stat().st_mtime, tz=datetime.UTC).date().isoformat()
        for task, record in Report.load(path).records.items():
            if (task, record.options) not in taken:
                taken.add((task, record.options))
                yield date, task, record


def rows(paths: Iterable[Path]) -> Iterator[Row]:
    """The rows of some reports."""
    import torch

    from tests.opinfo.report import Report

    groups: dict[tuple[str, str, str], Report] = {}
    dates: dict[tuple[str, str, str], str] = {}
    for date, task, record in newest(paths):
        key = (task.suite, record.options, task.dtype)
        groups.setdefault(key, Report()).records[task] = record
        dates.setdefault(key, date)
    for (suite, checks, dtype), report in sorted(groups.items()):
        statuses = Counter(report.status(task) for task in report.records)
        yield _row(suite, dtype, checks, statuses, report.records.values(), (dates[suite, checks, dtype], torch.__version__))


def merge(old: list[Row], new: Iterable[Row]) -> tuple[list[Row], list[str]]:
    """All rows in order, and a line about each new one that is left out because it is about fewer entries."""
    merged, said = {row.key: row for row in old}, []
    for row in new:
        before = merged.get(row.key)
        if before is not None and before.entries > row.entries:
            said.append(f"left out: {' '.join(row.key)} has {row.entries} entries, and {before.entries} in {RATES.name}")
        else:
            merged[row.key] = row
    return [merged[key] for key in sorted(merged)], said


def by_entry(paths: Iterable[Path]) -> Iterator[tuple[str, str, str, str, Record]]:
    """The records about dtypes of single operators, as docs/entries.py takes them."""
    from tests.opinfo.database import ERRORS
    from tests.opinfo.database import entries as database
    from tests.opinfo.report import Report

    for _, task, record in newest(paths):
        if task.suite in ("ops", "foreach") and task.dtype != ERRORS and task.entry in database(task.suite):
            entry = database(task.suite)[task.entry]
            yield task.entry, entry.aten_name or entry.name, task.dtype, Report(records={task: record}).status(task), record


def main(arguments: list[str] | None = None) -> int:
    """Fold the reports in; 1 if there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path, help="reports (default: build/opinfo/*.json)")
    paths = parser.parse_args(arguments).reports or sorted(REPORTS.glob("*.json"))
    if not paths:
        print("no report in build/opinfo/: make opinfo ARGS='--json build/opinfo/ops.json' writes one", file=sys.stderr)
        return 1
    merged, said = merge(kept() or [], rows(paths))
    RATES.write_text(json.dumps({"rows": [asdict(row) for row in merged]}, indent=1) + "\n")
    entries.write(entries.fold(entries.kept(), by_entry(paths)))
    print("\n".join([*said, f"{len(merged)} rows in docs/{RATES.name}"]))
    return 0


def _row(suite: str, dtype: str, checks: str, statuses: Counter[str], records: Iterable, when: tuple[str, str]) -> Row:
    from tests.opinfo.outcomes import FAILURES

    records = list(records)
    known, passing = statuses.pop("known", 0), sum(statuses.pop(name) for name in list(statuses) if name.endswith("pass"))
    failing = {name: statuses.pop(name) for name in FAILURES if name in statuses}
    return Row(
        suite, dtype, checks, _in_database(suite, dtype), len(records), passing, known, failing, dict(sorted(statuses.items())),
        sum(record.outcomes.total() for record in records), sum(bool(record.fallbacks) for record in records), *when)


def _in_database(suite: str, dtype: str) -> int:
    """Entries of a database that have samples in a dtype."""
    from tests.opinfo import options
    from tests.opinfo.database import ERRORS, tasks

    wanted = ["--dtypes", "none", "--error-inputs"] if dtype == ERRORS else ["--dtypes", dtype]
    return sum(1 for _ in tasks(options.parse(["--suite", suite, *wanted])))


if __name__ == "__main__":
    sys.exit(main())
