"""The ``torchtpu`` command."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys

# Each is a module with a function `main(arguments) -> exit status`; it is imported only when it is called.
_COMMANDS = {
    "check": ("torchtpu.inspect.check", "run a script, and say what made it slow: compiles, waits, fallbacks, with your lines"),
    "where": ("torchtpu.inspect.where", "the rule, decomposition or fallback of an operator, with file and line"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command of the ``torchtpu`` program; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="torchtpu", description="Tools around the tpu device of PyTorch.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n" + "\n".join(f"  {name:<10}{text}" for name, (_, text) in _COMMANDS.items()))
    parser.add_argument("--version", action="version", version=f"torchtpu {importlib.metadata.version('torchtpu')}")
    parser.add_argument("command", choices=_COMMANDS, metavar="command", help="one of those below; each takes --help")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    parsed = parser.parse_args(arguments)
    module, _ = _COMMANDS[parsed.command]
    return importlib.import_module(module).main(parsed.arguments)  # may load torch and JAX


if __name__ == "__main__":
    sys.exit(main())
