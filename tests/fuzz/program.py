"""A program as data: lines of Python over tensors named t0, t1, ..., and the script that shows what it does."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from types import CodeType

from tests.fuzz import prelude

MODES = ("fused", "strict", "debug")

_MAIN = '''
torch.tpu.set_eager_mode("{mode}")
for device in ("cpu", "tpu"):
    print(device)
    for name, t in program(device).items():
        grad = t.grad.tolist() if t.is_leaf and t.grad is not None else None
        print(" ", name, t.dtype, tuple(t.shape), t.stride(), t._version, t.requires_grad, t.tolist(), grad)
'''


@dataclass(frozen=True)
class Program:
    """What to run. ``exact``: all numbers are small and whole or halves of such: the same to the last bit everywhere."""

    lines: tuple[str, ...]
    exact: bool

    def code(self) -> list[CodeType]:
        """The lines, compiled one by one."""
        return [compile(line, f"line {place}: {line}", "exec") for place, line in enumerate(self.lines)]

    def script(self, mode: str = "fused", raising: frozenset[int] = frozenset()) -> str:
        """A script to paste; ``raising`` are the lines that fail on the CPU as well."""
        body = [f"with attempt():\n{textwrap.indent(line, '    ')}" if place in raising else line
                for place, line in enumerate(self.lines)]
        body.append("return {name: t for name, t in locals().items() if isinstance(t, torch.Tensor)}")
        function = "def program(device):\n" + textwrap.indent("\n".join(body), "    ")
        return f"{inspect.getsource(prelude)}\n\n{function}\n\n{_MAIN.format(mode=mode)}"

    def without(self, start: int, stop: int) -> Program:
        """The program with some of its lines left out."""
        return Program(self.lines[:start] + self.lines[stop:], self.exact)
