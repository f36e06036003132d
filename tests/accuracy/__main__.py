"""The worst error of every operator, as a table and as JSON: ``python -m tests.accuracy --help``.

Of the device and of the CPU, in units in the last place, against float64 (float64 against long doubles, complex64 against
complex128). Subnormal numbers are left out, as arguments, as exact results and as steps in between: XLA flushes them to zero.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TORCHTPU_PLATFORM", "cpu")
os.environ.update(TORCHTPU_FALLBACK="error", TORCHTPU_CACHE="0")


def main() -> int:
    """1 if an operator is over the bar and not listed as a deviation."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default=".", metavar="REGEX", help="only operators whose name holds this")
    parser.add_argument("--dtypes", default="", help="names with commas between them; all that are measured if left out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write op, dtype, ours_ulp and cpu_ulp to this file")
    options = parser.parse_args()

    # Importing these imports torch, which reads the environment.
    import torch

    from tests.accuracy.deviations import unlisted, unneeded
    from tests.accuracy.measure import DTYPES, chosen, measure

    warnings.simplefilter("ignore")
    dtypes = [getattr(torch, name) for name in options.dtypes.split(",") if name] or DTYPES
    verdicts = []
    print(f"{'operator':44}{'dtype':11}{'ours':>10}{'CPU':>10}  at")
    for verdict in measure(chosen(options.only), dtypes):
        verdicts.append(verdict)
        print(f"{verdict.op:44}{verdict.dtype:11}{verdict.ours_ulp:10.3g}{verdict.cpu_ulp:10.3g}  {verdict.at}", flush=True)
    problems = [problem for verdict in verdicts for problem in unlisted(verdict)]
    print(f"{len(verdicts)} measured, {sum(v.num_over > 0 for v in verdicts)} over the bar, {len(problems)} of them not listed")
    print("\n".join([*problems, *(f"listed, but not over the bar: {line}" for line in unneeded(verdicts))]))
    if options.json:
        records = [
            {"op": v.op, "dtype": v.dtype, "ours_ulp": float(f"{v.ours_ulp:.3g}"), "cpu_ulp": float(f"{v.cpu_ulp:.3g}")}
            for v in verdicts]
        options.json.write_text("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
