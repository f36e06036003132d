"""Fixtures of the device tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_TIMEOUT_S = 180

# Imports torch and JAX once, starts neither, and forks a process for every script it is sent.
_NURSERY = """
import json, os, sys, time, warnings
import jax, torch
warnings.filterwarnings("ignore", message=".*fork.*")  # nothing has threads yet
child = -1
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    deadline = time.monotonic() + request["timeout_s"]
    pid, status = os.waitpid(child, os.WNOHANG)
    while pid == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
        pid, status = os.waitpid(child, os.WNOHANG)
    if pid == 0:
        os.kill(child, 9)
        status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), flush=True)
if child == 0:
    warnings.resetwarnings()
    for number, name in enumerate(("/dev/null", request["out"], request["err"])):
        os.dup2(os.open(name, os.O_RDWR), number)
    os.chdir(request["cwd"])
    sys.path.insert(0, "")
    os.environ.clear()
    os.environ.update(request["environment"])
    exec(compile(request["script"], "<string>", "exec"), globals())
"""


@dataclass
class Done:
    """How a process ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def _nursery() -> Iterator[subprocess.Popen]:
    with subprocess.Popen(
            [sys.executable, "-c", _NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _raise_young(nursery: subprocess.Popen, script: str, cwd: Path, environment: dict[str, str]) -> Done:
    out, err = cwd / "stdout.txt", cwd / "stderr.txt"
    out.write_text("")
    err.write_text("")
    request = {"script": script, "cwd": str(cwd), "environment": environment, "out": str(out), "err": str(err),
               "timeout_s": _TIMEOUT_S}
    assert nursery.stdin is not None and nursery.stdout is not None
    nursery.stdin.write(json.dumps(request) + "\n")
    nursery.stdin.flush()
    return Done(int(nursery.stdout.readline()), out.read_text(), err.read_text())


@pytest.fixture
def fresh(request, tmp_path) -> Callable[..., Done]:
    """``fresh(script, VARIABLE=value)`` runs a script in a process of its own; None unsets a variable.

    The process must succeed and, unless ``quiet=False``, leave standard error empty. ``cold=True`` starts a new interpreter, for
    what happens when torch is imported; otherwise torch and JAX are there already, and not started.
    """

    def run(script: str, cold: bool = False, quiet: bool = True, **changes: str | None) -> Done:
        environment = os.environ | {name: value for name, value in changes.items() if value is not None}
        for name, value in changes.items():
            if value is None:
                environment.pop(name, None)
        script = textwrap.dedent(script)
        if cold:
            ended = subprocess.run(
                [sys.executable, "-c", script], cwd=tmp_path, env=environment, timeout=_TIMEOUT_S, check=False,
                capture_output=True, text=True)
            done = Done(ended.returncode, ended.stdout, ended.stderr)
        else:
            done = _raise_young(request.getfixturevalue("_nursery"), script, tmp_path, environment)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert not quiet or done.stderr == "", done.stderr
        return done

    return run
