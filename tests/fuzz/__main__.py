"""Hunt: `python -m tests.fuzz --programs 1000 --seed 7` writes each kind of disagreement, shrunk, as a script into a folder."""

from __future__ import annotations

import argparse
import os
import random
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.program import MODES, Program

_NUMBER = re.compile(r"[-+.\d]+")


def main() -> None:
    """Run programs until there were enough; go on after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--max-lines", type=int, default=14)
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--to", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    os.environ.setdefault("TORCHTPU_PLATFORM", "cpu")
    os.environ.setdefault("TORCHTPU_FALLBACK", "error")
    warnings.simplefilter("ignore")
    print(f"seed {options.seed}", flush=True)
    options.to.mkdir(parents=True, exist_ok=True)
    _hunt(options)


def _hunt(options: argparse.Namespace) -> None:
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from tests.fuzz.compare import Disagreement, check
    from tests.fuzz.shrink import shrink
    from tests.fuzz.writer import programs

    failures: list[Disagreement] = []
    kinds: set[str] = set()
    unhurried: Any = list(HealthCheck)
    counts: Counter[str] = Counter()

    @seed(options.seed)
    @settings(max_examples=options.programs, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=unhurried)
    @given(programs(options.max_lines))
    def run(program: Program) -> None:
        counts["programs"] += 1
        if counts["programs"] % 100 == 0:
            print(f"{counts['programs']} programs", flush=True)
        try:
            check(program, tuple(options.modes))
        except Disagreement as found:
            kind = _NUMBER.sub("", found.difference)[:80]
            if kind in kinds:
                return
            kinds.add(kind)
            found = shrink(found)
            path = options.to / f"{options.seed}_{len(failures)}.py"
            path.write_text(found.program.script(found.mode, found.raising))
            failures.append(found)
            lines = "\n    ".join(found.program.lines)
            print(f"{path} {found.mode}: {found.difference}\n    {lines}", flush=True)

    run()
    print(f"{len(failures)} disagreements among {options.programs} programs; seed {options.seed}", flush=True)


if __name__ == "__main__":
    main()
