"""Write ``docs/errors.md`` from the classes of ``torchtpu.errors``.

    python docs/generate_errors.py            # write it
    python docs/generate_errors.py --check    # only say whether it is current
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

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


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the page is not current")
    if parser.parse_args().check:
        current = PAGE.exists() and PAGE.read_text() == render()
        print("docs/errors.md is current" if current else "docs/errors.md is not current: make docs")
        return 0 if current else 1
    PAGE.write_text(render())
    return 0


if __name__ == "__main__":
    sys.exit(main())
