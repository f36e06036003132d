"""The line that says what takes long: when it comes, what it says, and that nothing comes after the end."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest
import torch

from torchtpu.runtime import executables, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    monkeypatch.setattr(progress, "_PERIOD_S", 0.01)


def shown_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is written while something takes a tenth of a second, and in the tenth after it."""
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.shown("work"):
        time.sleep(0.1)
    text = stream.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "torchtpu-progress"]
    time.sleep(0.1)
    assert stream.getvalue() == text
    return text


def test_short_work_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(io.StringIO(), monkeypatch) == ""


@pytest.mark.usefixtures("impatient")
def test_two_lines_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(io.StringIO(), monkeypatch) == "torchtpu: work: 0 s...\ntorchtpu: work: 0 s, done\n"


@pytest.mark.usefixtures("impatient")
def test_one_line_in_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_on(Terminal(), monkeypatch)
    assert text.count("\r") > 2
    assert text.endswith("\rtorchtpu: work: 0 s, done\x1b[K\n")
    assert text.count("\n") == 1


@pytest.mark.usefixtures("impatient")
def test_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHTPU_PROGRESS", "0")
    assert shown_on(io.StringIO(), monkeypatch) == ""


@pytest.mark.usefixtures("impatient")
def test_work_that_fails_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with pytest.raises(KeyboardInterrupt), progress.shown("work"):
        time.sleep(0.1)
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("gave up\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "torchtpu-progress"]


@pytest.mark.usefixtures("impatient")
def test_compile_names_line_operators_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_it = executables._compile

    def slow(*given: object) -> object:
        time.sleep(0.1)
        return compile_it(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(executables, "_compile", slow)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    x = torch.ones(12).to("tpu").exp().sin()
    x.cpu()
    assert f"torchtpu: compiling 2 operators, ended at {__file__}:" in stream.getvalue()
    assert "(copy to the host): 0 s..." in stream.getvalue()
