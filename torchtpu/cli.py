"""The ``torchtpu`` command."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys

# Of every command: the module whose main() it is, and what it does.
_COMMANDS = {
    "cache": ("torchtpu.cache_command", "list, measure, clear, pack and unpack the compiled programs on disk"),
    "check": ("torchtpu.inspect.check", "run a script, and say what made it slow: compiles, waits, fallbacks, with your lines"),
    "where": ("torchtpu.inspect.where", "the rule, decomposition or fallback of an operator, with file and line"),
}
_WITHOUT_TORCH = {"cache"}


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
    if parsed.command not in _WITHOUT_TORCH:
        from torchtpu.autoload import register  # loads torch: only when it is needed

        register()
    return importlib.import_module(module).main(parsed.arguments)


if __name__ == "__main__":
    sys.exit(main())
