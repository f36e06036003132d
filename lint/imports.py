"""Imports between rooms point one way.

``errors, flags`` <- ``rules`` (JAX, never torch) <- ``dtypes, graph`` <- ``runtime`` <- ``device, compile,
distributed, kernels`` <- the rest; ``migrate`` stands alone. An import inside a function counts; one under
``TYPE_CHECKING`` does not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from lint.finding import ROOT, Finding, files, parse

TIERS: tuple[tuple[str, ...], ...] = (
    ("_messages", "_version", "errors", "flags"),
    ("rules",),
    ("dtypes", "graph"),
    ("runtime", "_C"),
    ("device", "compile", "distributed", "kernels"),
)
TIER = {room: number for number, rooms in enumerate(TIERS) for room in rooms}
TOP = len(TIERS)
FORBIDDEN = {"rules": ("torch",)}
MIGRATE_MAY = ("libcst", "torchtpu.migrate", *sys.stdlib_module_names)


def check() -> Iterator[Finding]:
    """Every module of the package."""
    package = ROOT / "torchtpu"
    for path in files(".py", rooms=("torchtpu",)):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        for name, line in _imports(parse(path), path):
            if message := _complaint(room, name):
                yield Finding(path, line, message)


def _complaint(room: str, name: str) -> str | None:
    top = name.partition(".")[0]
    if room == "migrate":
        allowed = any(name == m or name.startswith(m + ".") for m in MIGRATE_MAY)
        return None if allowed else f"migrate stands alone and may not import {name}"
    if top in FORBIDDEN.get(room, ()):
        return f"{room} may not import {top}"
    if top != "torchtpu":
        return None
    other = name.split(".")[1] if "." in name else "torchtpu"
    mine, theirs = TIER.get(room, TOP), TIER.get(other, TOP)
    return f"{room} may not import {other}: imports point from upper rooms to lower ones" if theirs > mine else None


def _imports(tree: ast.Module, path: Path) -> Iterator[tuple[str, int]]:
    """Full names of what a module imports, with lines."""
    skipped = {
        id(node) for block in ast.walk(tree) if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body for node in ast.walk(statement)
    }
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            relative = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (relative, node.module) if part)
            if base == "torchtpu":  # from torchtpu import errors
                yield from ((f"torchtpu.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield base, node.lineno
