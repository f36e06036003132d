"""Run every lint of this folder: 1 when one of them found an error."""

from __future__ import annotations

import sys

from lint import budgets, csrc_includes, imports, portable

LINTS = (budgets, csrc_includes, imports, portable)


def main() -> int:
    """Print what was found, one line each."""
    findings = [finding for lint in LINTS for finding in lint.check()]
    for finding in findings:
        print(finding)
    errors = sum(finding.fatal for finding in findings)
    print(f"house rules: {errors} errors, {len(findings) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
