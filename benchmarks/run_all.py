"""`make bench`: run the benchmarks and keep what they print in ``benchmarks/results/<name>_<hardware>_<date>.md``.

    python -m benchmarks.run_all            # all of them
    python -m benchmarks.run_all record     # only this one
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import tables

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BENCHMARKS: dict[str, list[str]] = {
    "record": [],
    "flush": [],
    "ops": [],
    "dynamic_shapes": [],
    "train_step": [],
    "train_step_12_layers": ["--layers", "12", "--rounds", "3"],
    "startup": [],
    "generate": ["--rounds", "3"],
    "data": [],
}


def main() -> int:
    """Run the named benchmarks; 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="all of them when none is named")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    failed = [name for name in names if not _run(name)]
    if failed:
        print(f"FAILED: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str) -> bool:
    module = f"benchmarks.{name.removesuffix('_12_layers')}"
    command = ["-m", module, *BENCHMARKS[name]]
    print(f"## {name}\n", flush=True)
    result = subprocess.run([sys.executable, *command], cwd=ROOT, text=True, capture_output=True, check=False)
    print(result.stdout if result.returncode == 0 else result.stdout + result.stderr, flush=True)
    if result.returncode != 0:
        return False
    RESULTS.mkdir(exist_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    path = RESULTS / f"{name}_{_hardware()}_{today}.md"
    beside = path.with_suffix(".tmp")
    beside.write_text(
        f"# {name}, {today}\n\n`python {' '.join(command)}`\n\n{tables.environment()}\n\n{result.stdout.strip()}\n")
    beside.replace(path)
    print(f"written to {path.relative_to(ROOT)}\n")
    return True


def _hardware() -> str:
    """Such as ``cpu-2cores`` or ``tpu-v5-lite``, asked of JAX in a process of its own so that no chip stays held."""
    code = "import jax; print(jax.devices()[0].device_kind)"
    wanted = os.environ.get("TORCHTPU_PLATFORM", "")
    environment = {**os.environ, "JAX_PLATFORMS": wanted}
    result = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True)
    slug = re.sub(r"[^a-z0-9]+", "-", result.stdout.strip().lower()).strip("-")
    return f"cpu-{len(os.sched_getaffinity(0))}cores" if slug == "cpu" else slug


if __name__ == "__main__":
    sys.exit(main())
