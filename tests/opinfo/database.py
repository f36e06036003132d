"""The entries of PyTorch's databases, and the tasks they make."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.opinfo.options import Options

ERRORS = "error-inputs"  # stands for a dtype in the task of an entry's bad arguments
# The databases of modules and optimizers name few; these are worth trying everywhere.
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Task:
    """What a worker does at a time: all samples of one entry in one dtype."""

    suite: str
    entry: str
    dtype: str

    @property
    def key(self) -> str:
        """As in the report."""
        return f"{self.suite} {self.entry} {self.dtype}"


@functools.cache
def entries(suite: str) -> dict[str, Any]:
    """By name. The import takes seconds, and turns off PyTorch's global backend flags."""
    if suite == "modules":
        from torch.testing._internal.common_modules import module_db

        # A lazy module has nothing to copy to a device before its first call.
        return {e.name: e for e in module_db if "Lazy" not in e.name}
    if suite == "optim":
        from torch.testing._internal.common_optimizers import optim_db

        return {e.name: e for e in optim_db}
    from torch.testing._internal import common_methods_invocations as invocations
    from torch.testing._internal import common_utils

    # Every sample would walk the whole stack, and open each file in it, for a unittest.TestCase to note itself on.
    common_utils.extract_test_fn = lambda: None

    if suite == "ops":
        return {e.full_name: e for e in invocations.op_db}
    kinds = ("unary", "binary", "pointwise", "reduce", "other")
    return {e.full_name: e for kind in kinds for e in getattr(invocations, f"foreach_{kind}_op_db")}


def dtypes(suite: str, entry: Any) -> tuple[torch.dtype, ...]:
    """Those that the CPU takes."""
    return tuple(entry.supported_dtypes("cpu")) if suite in ("ops", "foreach") else _FLOATS


def tasks(options: Options) -> Iterator[Task]:
    """Everything that the command line asks for."""
    for name, entry in entries(options.suite).items():
        if not options.only.search(name):
            continue
        known = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes(options.suite, entry))
        wanted = known if options.dtypes == ("all",) else [dtype for dtype in options.dtypes if dtype in known]
        yield from (Task(options.suite, name, dtype) for dtype in wanted)
        if options.error_inputs and _has_errors(options.suite, entry):
            yield Task(options.suite, name, ERRORS)


def _has_errors(suite: str, entry: Any) -> bool:
    attribute = {"modules": "module_error_inputs_func", "optim": "optim_error_inputs_func"}.get(suite, "error_inputs_func")
    return getattr(entry, attribute) is not None
