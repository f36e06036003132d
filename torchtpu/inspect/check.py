"""Run a program as it is, and say at the end what made it slow.

    torchtpu check train.py --epochs 3
    torchtpu check --json -m package.train
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it


def main(arguments: list[str] | None = None) -> int:
    """Run the script as ``__main__`` and print the report to stderr, also after an error; returns the script's exit status."""
    parser = argparse.ArgumentParser(
        prog="torchtpu check", usage="%(prog)s [--json] (script.py | -m module) [args ...]",
        description="Run a program as Python would, then print to stderr what made it slow: compiles with the reason for each, "
                    "waits of the host, fallbacks to the CPU, all with your lines. The exit status is the program's own.")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, as for python -m")
    parser.add_argument("program", help="a script, or a module after -m")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="what the program finds in sys.argv[1:]")
    parsed = parser.parse_args(arguments)
    if not parsed.module and not os.path.exists(parsed.program):
        parser.error(f"expected a script, found no file {parsed.program!r}; a module comes after -m")
    status = _run(_program(parsed.program, parsed.args, parsed.module))
    _report(parsed.json)
    return status


def _program(name: str, args: list[str], is_module: bool) -> Callable[[], Any]:
    sys.argv = [name, *args]
    sys.path.insert(0, os.getcwd() if is_module else os.path.dirname(os.path.abspath(name)))
    if is_module:
        return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)
    return lambda: runpy.run_path(name, run_name="__main__")


def _run(program: Callable[[], Any]) -> int:
    """The exit status; errors are printed as Python prints them, without the frames of this file and of runpy."""
    try:
        program()
    except SystemExit as error:
        return _status(error.code)
    except KeyboardInterrupt as error:
        _print(error)
        return _INTERRUPTED
    except BaseException as error:  # whatever ends a program
        _print(error)
        return 1
    finally:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    return 0


def _status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _print(error: BaseException) -> None:
    trace = _own_frames(error.__traceback__)
    if sys.excepthook is not sys.__excepthook__:
        try:
            sys.excepthook(type(error), error, trace)
            return
        except Exception as second:  # Python prints both
            print("Error in sys.excepthook:", file=sys.stderr)
            traceback.print_exception(type(second), second, second.__traceback__, chain=False)
            print("\nOriginal exception was:", file=sys.stderr)
    traceback.print_exception(type(error), error.with_traceback(trace), trace)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """From the program's first frame on; everything, where the error came before it."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        first = first.tb_next
    return first if first is not None else trace


def _report(as_json: bool) -> None:
    from torchtpu import inspect

    report = inspect.explain()
    print(json.dumps(report.as_dict()) if as_json else f"\n{report}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
