"""Run PyTorch's operator databases on the tpu device: ``python -m tests.opinfo --help``."""

from __future__ import annotations

import os
import sys

from tests.opinfo import options as command_line
from tests.opinfo.options import Options


def main() -> int:
    """1 if a task fails that is not listed as known, or a listed one passes."""
    options = command_line.parse()
    _set_environment(options)
    # Importing these imports torch, which reads the environment.
    from tests.opinfo.database import tasks
    from tests.opinfo.outcomes import FAILURES
    from tests.opinfo.progress import Meter
    from tests.opinfo.report import Report, changes, failures, lines, summary
    from tests.opinfo.workers import Pool

    report = Report(options.json)
    if options.resume and options.json and options.json.exists():
        report = Report.load(options.json)
        if others := report.without(options.checks.key):
            print(f"{others} records of other options are left out", file=sys.stderr)
    asked = list(tasks(options))
    if not asked:
        sys.exit(f"no {options.suite} entry has {options.only.pattern!r} in its name and one of {', '.join(options.dtypes)}")
    left = [task for task in asked if task not in report.records]
    if not left:
        report.records.clear()
        left = asked
    print(f"{len(left)} tasks, {len(report.records)} done before", file=sys.stderr)
    try:
        with Meter(len(left)) as meter:
            for task, record in Pool(options.checks, options.jobs, options.timeout_s).run(left):
                report.add(task, record)
                meter.advance(task.key, report.status(task) in FAILURES)
    finally:
        report.save()
    parts = [failures(report)] if options.failures else []
    parts += [summary(report)]
    parts += [changes(Report.load(options.compare), report)] if options.compare else []
    print(lines(parts))
    stale = options.checks.max_samples == 0 and report.stale()
    return 1 if report.failed() or stale else 0


def _set_environment(options: Options) -> None:
    """For the workers, which are started with it."""
    os.environ.update(TORCHTPU_FALLBACK=options.checks.fallback, TORCHTPU_CACHE="0", OMP_NUM_THREADS="1")


if __name__ == "__main__":
    sys.exit(main())
