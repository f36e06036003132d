"""What ``torch.compile`` could not compile, said once for each line: what it was, why, and what to do."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torchtpu.runtime.user_code import stack_level


class CompileWarning(UserWarning):
    """Part of a function under ``torch.compile`` runs as eager code does; the numbers are the same, the host works more."""


_told: set[tuple[str, str]] = set()


def tell_operator(node: torch.fx.Node, why: str) -> None:
    """An operator that is no part of a compiled graph."""
    _tell(
        str(node.target), _line(node), why,
        "It runs on its own, between the programs before and after it. Take it out of the compiled function, or write it in "
        "operators that have a lowering (`torchtpu where NAME` says which do).")


def tell_break(graph_module: torch.fx.GraphModule) -> None:
    """A construct at which Dynamo ended a graph, if it ended this one at any."""
    reason: Any = getattr(graph_module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return
    frame = reason.user_stack[-1] if reason.user_stack else None
    _tell(
        "a graph break", f"{frame.filename}:{frame.lineno}" if frame else "an unknown line", _in_one_line(_why(reason.reason)),
        "The code there runs as Python does, and the rest is compiled on its own. fullgraph=True makes it an error.")


def tell_frame(frame: Any) -> None:
    """A function that Dynamo gave up as a whole, if it works on the device."""
    if not any(map(_is_on_device, tree_leaves(list(frame.f_locals.values())))):
        return
    from torch._dynamo.utils import get_compilation_metrics

    code, metrics = frame.f_code, get_compilation_metrics()
    why = metrics[-1].fail_reason if metrics else None
    _tell(
        f"the function {code.co_name}", f"{code.co_filename}:{code.co_firstlineno}", _in_one_line(why or "Dynamo gave it up"),
        "All of it runs as Python does; functions that it calls may be compiled. fullgraph=True makes it an error.")


def _is_on_device(value: Any) -> bool:
    if isinstance(value, torch.nn.Module):
        value = next(value.parameters(), None)
    return isinstance(value, torch.Tensor) and value.device.type == "tpu"


def _why(reason: str) -> str:
    """Where Dynamo goes back to an earlier state of the frame it names only that; why it did is what it counted last."""
    from torch._dynamo.utils import counters

    return next(reversed(counters["graph_break"]), reason) if reason == "step_unsupported" else reason


def _tell(what: str, line: str, why: str, consequence: str) -> None:
    if (what, line) in _told:
        return
    _told.add((what, line))
    warnings.warn(
        f"torch.compile: {what} at {line} is not part of a compiled program: {why}. {consequence}", CompileWarning,
        stacklevel=stack_level())


def _line(node: torch.fx.Node) -> str:
    """The user's line that a node comes from."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.stack_trace or "")
    return ":".join(found[-1]) if found else "an unknown line"


def _in_one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
