"""Fixtures of the device tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest


@pytest.fixture
def fresh(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """``fresh(script, VARIABLE=value)`` runs a script in a process of its own; None unsets a variable.

    The process must succeed and, unless ``quiet=False``, leave standard error empty.
    """

    def run(script: str, quiet: bool = True, **environment: str | None) -> subprocess.CompletedProcess:
        changed = os.environ | {name: value for name, value in environment.items() if value is not None}
        for name, value in environment.items():
            if value is None:
                changed.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, env=changed, timeout=180, check=False,
            capture_output=True, text=True)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert not quiet or done.stderr == "", done.stderr
        return done

    return run
