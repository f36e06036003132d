"""A file has at most 400 lines and a function at most 60: a warning there, an error at one and a half times that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lint.finding import Finding, files, parse

FILE_LINES = 400
FUNCTION_LINES = 60
LIMIT = 1.5


def check() -> Iterator[Finding]:
    """Files of all languages, functions of Python."""
    for path in files(".py", ".cpp", ".h"):
        count = len(path.read_text().splitlines())
        if count > FILE_LINES:
            yield Finding(path, 1, f"{count} lines in a file of at most {FILE_LINES}", count > LIMIT * FILE_LINES)
    for path in files(".py"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > FUNCTION_LINES:
                    text = f"{node.name} has {count} lines, a function at most {FUNCTION_LINES}"
                    yield Finding(path, node.lineno, text, count > LIMIT * FUNCTION_LINES)
