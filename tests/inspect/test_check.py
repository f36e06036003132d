"""``torchtpu check``: the program runs as it would without it, and the report comes last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchtpu import cli

WORK = """
import torch
for size in (3, 3, 4):
    x = torch.ones(size).to("tpu")
    print(((x + 1).exp() * x).tanh().sum().item())
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Runs a script's text under ``torchtpu check`` in this process; returns the status and both outputs."""
    monkeypatch.setattr(sys, "argv", ["torchtpu"])
    monkeypatch.setattr(sys, "path", list(sys.path))

    def check(text: str, *options: str, args: tuple[str, ...] = ()) -> tuple[int, str, str]:
        script = tmp_path / "script.py"
        script.write_text(text)
        status = cli.main(["check", *options, str(script), *args])
        return status, *capfd.readouterr()

    return check


def test_report_comes_after_the_output(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    status, out, err = run(WORK)
    assert status == 0
    assert len(out.splitlines()) == 3
    assert f"1. {tmp_path / 'script.py'}:5  " in err
    assert "got self: float32[4] where it was float32[3]" in err


def test_arguments_are_the_programs_own(run) -> None:  # type: ignore[no-untyped-def]
    status, out, err = run("import sys; print(__name__, sys.argv[1:])", args=("--json", "-m", "--help"))
    assert (status, out) == (0, "__main__ ['--json', '-m', '--help']\n")
    assert "nothing to improve" in err


@pytest.mark.parametrize(("code", "status"), [("3", 3), ("None", 0), ("'bad luck'", 1)])
def test_exit_status_is_kept(run, code: str, status: int) -> None:  # type: ignore[no-untyped-def]
    got, _, err = run(f"raise SystemExit({code})")
    assert got == status
    assert ("bad luck" in err) == (code == "'bad luck'")
    assert "torchtpu: " in err


def test_error_is_shown_as_python_shows_it_then_the_report(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    status, _, err = run("def f():\n    raise ValueError('seen')\nf()\n")
    assert status == 1
    trace, _, report = err.partition("ValueError: seen\n")
    assert trace.startswith(f'Traceback (most recent call last):\n  File "{tmp_path / "script.py"}", line 3')
    assert "check.py" not in trace
    assert "runpy" not in trace
    assert "torchtpu: nothing to improve" in report


def test_syntax_error_is_the_programs(run) -> None:  # type: ignore[no-untyped-def]
    status, _, err = run("def f(:\n")
    assert status == 1
    assert "SyntaxError" in err


@pytest.mark.parametrize(("hook", "shown"), [("None", "not callable"), ("lambda *_: {}['hook']", "KeyError: 'hook'")])
def test_a_hook_for_errors_that_fails_itself(run, monkeypatch: pytest.MonkeyPatch, hook: str, shown: str) -> None:  # type: ignore[no-untyped-def]
    """Both errors are shown, as by Python, and then the report."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    status, _, err = run(f"import sys\nsys.excepthook = {hook}\n1 / 0\n")
    assert status == 1
    assert err.index(shown) < err.index("ZeroDivisionError: division by zero") < err.index("torchtpu: nothing to improve")


def test_a_closed_output(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.stdout.close()\n")
    made = subprocess.run(
        [sys.executable, "-m", "torchtpu.cli", "check", str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0 and "torchtpu: nothing to improve" in made.stderr


def test_interrupt(run) -> None:  # type: ignore[no-untyped-def]
    status, _, err = run("raise KeyboardInterrupt")
    assert status == 130
    assert err.index("KeyboardInterrupt") < err.index("torchtpu: ")


def test_json(run) -> None:  # type: ignore[no-untyped-def]
    status, _, err = run(WORK, "--json")
    assert status == 0
    assert json.loads(err)["findings"][0]["kind"] == "compiles"


def test_missing_script_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "no_such_script.py"])
    assert ended.value.code == 2
    assert "found no file 'no_such_script.py'" in capfd.readouterr().err


def test_module_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK + "import sys; sys.exit(7)")
    command = [sys.executable, "-m", "torchtpu.cli", "check", "-m", "work"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 7
    assert len(done.stdout.splitlines()) == 3
    assert f"1. {tmp_path / 'work.py'}:5  " in done.stderr
