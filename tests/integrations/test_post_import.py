"""Hooks that run when a library is imported."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest

from torchtpu.integrations import IntegrationWarning, _applier
from torchtpu.runtime import post_import


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be imported, and is not yet."""
    (tmp_path / "some_library.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_library", raising=False)
    return "some_library"


def test_the_hook_runs_once_after_the_import(library: str) -> None:
    """With the module already filled, and not again when it is imported again."""
    seen = []
    post_import.when_imported(library, lambda module: seen.append(module.loaded))
    assert seen == []
    importlib.import_module(library)
    importlib.import_module(library)
    assert seen == [True]
    del sys.modules[library]


def test_the_hook_runs_at_once_if_the_library_is_there(library: str) -> None:
    """A library imported before torchtpu is found too."""
    importlib.import_module(library)
    seen = []
    post_import.when_imported(library, lambda module: seen.append(module.__name__))
    assert seen == [library]
    del sys.modules[library]


def test_a_missing_library_is_missing() -> None:
    """Python's own error, not ours."""
    post_import.when_imported("no_such_library_here", lambda module: pytest.fail("nothing was imported"))
    with pytest.raises(ModuleNotFoundError, match="no_such_library_here"):
        importlib.import_module("no_such_library_here")


@pytest.mark.parametrize(("version", "is_known"), [("5.23.9", False), ("5.24.0", True), ("5.99", True), ("6.0.0.dev0", False)])
def test_other_versions_are_left_alone(monkeypatch: pytest.MonkeyPatch, version: str, is_known: bool) -> None:
    """One warning, and nothing is applied."""
    applied = []
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    monkeypatch.setattr(importlib, "import_module", lambda name: type("Room", (), {"apply": staticmethod(applied.append)}))
    apply = _applier("transformers", "5.24", "6")
    if is_known:
        apply(sys)
        assert applied == [sys]
    else:
        with pytest.warns(IntegrationWarning, match=f"transformers {version}"):
            apply(sys)
        assert applied == []
