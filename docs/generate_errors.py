"""Write ``docs/errors.md`` from the classes of ``torchtpu.errors``.

    python -m docs.generate_errors            # write it
    python -m docs.generate_errors --check    # only say whether it is current
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from docs import page
from torchtpu import errors

PAGE = Path(__file__).parent / "errors.md"
_HEAD = """\
# Errors

Generated from `torchtpu/errors.py` by `make docs`. Every message ends with the anchor of its section here. The words in
braces are filled in where the error is raised; all classes derive from `TorchTPUError`, itself a `RuntimeError`.
"""


def render() -> str:
    """The whole page."""
    base = errors.TorchTPUError
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, base) and c is not base]
    return "\n".join([_HEAD, *(_section(c) for c in classes)])


def _section(error: type[errors.TorchTPUError]) -> str:
    bases = [b.__name__ for b in error.__bases__ if b is not errors.TorchTPUError]
    also = f"\nAlso a `{'`, `'.join(bases)}`.\n" if bases else ""
    return f"## {error.__name__}\n\n{inspect.cleandoc(error.__doc__ or '')}\n{also}\n> {error.template}\n"


if __name__ == "__main__":
    sys.exit(page.main(PAGE, render, __doc__))
