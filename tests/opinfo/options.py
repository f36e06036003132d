"""The command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.opinfo.outcomes import MEANING

SUITES = ("ops", "modules", "optim", "foreach")
VARIANTS = ("fn", "inplace", "out")
MODES = ("fused", "strict", "debug")
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex32", "complex64", "complex128", "bool", "uint8", "int8", "int16", "int32",
    "int64", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Checks:
    """What is done with each sample: everything that a record depends on, besides its task."""

    variants: tuple[str, ...] = ("fn",)
    max_samples: int = 0
    grad: bool = False
    gradgrad: bool = False
    mode: str = "strict"
    fallback: str = "warn"
    torch_compile: bool = False
    topology: str = ""  # compiled for it, instead of run and compared

    @property
    def key(self) -> str:
        """One line that tells records of different checks apart."""
        orders = [name for name, on in (("grad", self.grad), ("gradgrad", self.gradgrad)) if on]
        samples = f"samples={self.max_samples or 'all'}"
        if self.topology:
            return f"compile={self.topology} fallback={self.fallback}"
        compiled = ["torch.compile"] if self.torch_compile else []
        return " ".join([",".join(self.variants), *orders, samples, self.mode, *compiled, f"fallback={self.fallback}"])


@dataclass(frozen=True)
class Options:
    """The command line, parsed."""

    suite: str
    checks: Checks
    only: re.Pattern[str]
    dtypes: tuple[str, ...]
    error_inputs: bool
    jobs: int
    timeout_s: float
    json: Path | None
    resume: bool
    failures: bool
    compare: Path | None


def _names(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """Parses comma-separated names."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(allowed)}")
        return names

    return parse


def parser() -> argparse.ArgumentParser:
    """All options."""
    p = argparse.ArgumentParser(
        prog="python -m tests.opinfo", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run the samples of PyTorch's own operator databases on the tpu device and compare with the CPU.",
        epilog="outcomes:\n" + "\n".join(f"  {name:13}{text}" for name, text in MEANING.items()))
    p.add_argument("--suite", choices=SUITES, default="ops", help="which database (default: ops)")
    p.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="entries whose name has a match")
    p.add_argument("--dtypes", type=_names(*DTYPES, "all", "none"), default=("float32", "int64", "bfloat16"), metavar="D,D,...",
                   help="all: whatever an entry takes; none: with --error-inputs alone (default: float32,int64,bfloat16)")
    p.add_argument("--max-samples", type=int, default=0, metavar="N", help="samples of an entry and dtype (default: 0, all)")
    p.add_argument("--variants", type=_names(*VARIANTS), default=("fn",), metavar="V,V,...",
                   help=f"some of {','.join(VARIANTS)} (default: fn)")
    p.add_argument("--grad", action="store_true", help="compare gradients")
    p.add_argument("--gradgrad", action="store_true", help="compare second-order gradients too, in float64 and complex128")
    p.add_argument("--error-inputs", action="store_true", help="also one task an entry with its samples of bad arguments")
    p.add_argument("--mode", choices=MODES, default="strict", help="eager mode of the device (default: strict)")
    p.add_argument("--torch-compile", action="store_true", help="make the calls on the device under torch.compile")
    p.add_argument("--compile", default="", metavar="TOPOLOGY", dest="topology",
                   help="compile one sample of an entry and dtype, with gradients, for this chip (v5e); nothing is compared")
    p.add_argument("--fallback", choices=("error", "warn"), default="warn", help="operators without a lowering (default: warn)")
    p.add_argument("--jobs", type=int, default=2, metavar="N", help="worker processes (default: 2)")
    p.add_argument("--timeout", type=float, default=300, metavar="S", help="seconds for one task (default: 300)")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the report here, as it grows")
    p.add_argument("--resume", action="store_true", help="go on with the report of --json; start again if nothing is left of it")
    p.add_argument("--failures", action="store_true", help="print the messages of failures, by entry")
    p.add_argument("--compare", type=Path, metavar="FILE", help="print what changed since this report")
    return p


def parse(arguments: list[str] | None = None) -> Options:
    """Parse the command line; exits with a message if it is wrong."""
    p = parser()
    given = p.parse_args(arguments)
    if given.resume and not given.json:
        p.error("--resume needs --json")
    if given.topology and given.error_inputs:
        p.error("--compile takes no --error-inputs")
    if given.topology:
        checks = Checks(grad=True, mode="fused", fallback=given.fallback, topology=given.topology)
    else:
        checks = Checks(
            given.variants, given.max_samples, given.grad or given.gradgrad, given.gradgrad, given.mode, given.fallback,
            given.torch_compile)
    return Options(
        given.suite, checks, given.only, given.dtypes, given.error_inputs, given.jobs, given.timeout, given.json,
        given.resume, given.failures, given.compare)
