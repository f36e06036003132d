"""``torchtpu cache`` on entries that no compiler made."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from torchtpu import cache_command
from torchtpu.runtime import cache_entry, installation
from torchtpu.runtime.disk_cache import DiskCache

HEADER = {"memory": {}, "num_nodes": 12, "reason": "read", "compile_s": 1.5, "line": "train.py:7", "device": "cpu"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two entries: one of this installation, used now, and one of another, unused for ten days."""
    path = tmp_path / "programs"
    cache = DiskCache(path, 1 << 30)
    cache.put("mine", {**HEADER, "installation": installation.facts()}, b"m" * 3000)
    cache.put("other", {**HEADER, "installation": {"jaxlib": "0.0.1"}}, b"o" * 10)
    then = time.time() - 10 * 86400
    os.utime(path / cache_entry.file_name("other"), (then, then))
    return path


def run(*arguments: object) -> int:
    return cache_command.main([str(a) for a in arguments])


def test_ls(directory, capsys):
    assert run("--dir", directory, "ls") == 0
    title, first, second = capsys.readouterr().out.splitlines()
    assert title.split() == ["entry", "size", "used", "ops", "compile_s", "fits", "reason", "line"]
    assert first.split()[0] == cache_entry.file_name("mine")[:12]
    assert first.split()[4:] == ["12", "1.5", "yes", "read", "train.py:7"]
    assert " 10d " in second and " no " in second
    assert run("--dir", directory, "ls", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["fits"] for entry in found] == [True, False] and found[1]["installation"] == {"jaxlib": "0.0.1"}


def test_a_damaged_entry_is_listed_as_such(directory, capsys):
    (directory / ("0" * 64 + cache_entry.SUFFIX)).write_bytes(b"nothing of ours")
    assert run("--dir", directory, "ls") == 0
    assert "damaged" in capsys.readouterr().out
    assert run("--dir", directory, "stats", "--json") == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["entries"], stats["fit"], stats["damaged"], stats["compile_s"]) == (3, 1, 1, 3.0)


def test_clear(directory, capsys, monkeypatch):
    (directory / "notes.txt").write_text("not an entry")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run("--dir", directory, "clear") == 2 and "--yes" in capsys.readouterr().err
    assert run("--dir", directory, "clear", "--older-than", "7d", "--yes") == 0
    assert sorted(p.name for p in directory.iterdir()) == sorted([cache_entry.file_name("mine"), "notes.txt"])
    assert run("--dir", directory, "clear", "--yes") == 0
    assert [p.name for p in directory.iterdir()] == ["notes.txt"]
    with pytest.raises(SystemExit) as left:
        run("--dir", directory, "clear", "--older-than", "soon")
    assert left.value.code == 2


def test_a_missing_directory_is_said(tmp_path, capsys):
    for action in ("ls", "stats", "clear"):
        assert run("--dir", tmp_path / "nowhere", action) == 1
        assert capsys.readouterr().err == f"torchtpu cache: no cache: {tmp_path / 'nowhere'} is not a directory\n"
    assert not (tmp_path / "nowhere").exists()


def test_packing_and_unpacking(directory, tmp_path, capsys):
    one, two, new = tmp_path / "one.tar", tmp_path / "two.tar", tmp_path / "new"
    assert run("--dir", directory, "pack", one) == 0
    for path in directory.iterdir():
        os.utime(path)
    assert run("--dir", directory, "pack", two) == 0
    assert one.read_bytes() == two.read_bytes()
    capsys.readouterr()
    assert run("--dir", new, "unpack", one) == 0
    assert "unpacked 2 entries" in (said := capsys.readouterr().out) and "2 new, 1 for other versions" in said
    assert {p.name: p.read_bytes() for p in new.iterdir()} == {p.name: p.read_bytes() for p in directory.iterdir()}
    assert {stat.S_IMODE(p.stat().st_mode) for p in new.iterdir()} == {0o600} and stat.S_IMODE(new.stat().st_mode) == 0o700
    assert run("--dir", new, "unpack", one) == 0 and "0 new" in capsys.readouterr().out
    assert DiskCache(new, 1 << 30).get("mine") == DiskCache(directory, 1 << 30).get("mine")


def forged(kind: str, entry: bytes, name: str) -> tuple[tarfile.TarInfo, bytes]:
    """A member that must not be unpacked."""
    member, content = tarfile.TarInfo(name), entry
    if kind == "path":
        member.name = f"../{name}"
    elif kind == "absolute":
        member.name = f"/tmp/{name}"
    elif kind == "link":
        member.type, member.linkname, content = tarfile.SYMTYPE, "/etc/passwd", b""
    elif kind == "hard link":
        member.type, member.linkname, content = tarfile.LNKTYPE, name, b""
    elif kind == "damage":
        content = entry[:-40] + bytes([entry[-40] ^ 1]) + entry[-39:]
    elif kind == "short":
        content = entry[:-1]
    elif kind == "foreign":
        content = b"#!/bin/sh\n"
    elif kind == "name":
        member.name = "f" * 64 + cache_entry.SUFFIX
    member.size = len(content)
    return member, content


@pytest.mark.parametrize("kind", ["path", "absolute", "link", "hard link", "damage", "short", "foreign", "name"])
def test_what_is_not_an_entry_is_refused(directory, tmp_path, capsys, kind):
    name = cache_entry.file_name("mine")
    with tarfile.open(tmp_path / "forged.tar", "w") as archive:
        archive.add(directory / cache_entry.file_name("other"), cache_entry.file_name("other"))
        member, content = forged(kind, (directory / name).read_bytes(), name)
        archive.addfile(member, io.BytesIO(content))
    assert run("--dir", tmp_path / "new", "unpack", tmp_path / "forged.tar") == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and member.name in said[0] and said[1].endswith("nothing was unpacked")
    assert not (tmp_path / "new").exists()


def test_what_is_no_archive_is_refused(tmp_path, capsys):
    (tmp_path / "text.tar").write_text("no archive" * 100)
    assert run("--dir", tmp_path / "new", "unpack", tmp_path / "text.tar") == 1
    assert "is not a sound tar file" in capsys.readouterr().err
    assert run("--dir", tmp_path / "new", "unpack", tmp_path / "missing.tar") == 1
    assert "missing.tar: No such file" in capsys.readouterr().err


def test_a_directory_of_others_is_refused(directory, tmp_path, capsys):
    assert run("--dir", directory, "pack", tmp_path / "packed.tar") == 0
    directory.chmod(0o777)
    assert run("--dir", directory, "unpack", tmp_path / "packed.tar") == 1
    assert "writable by other users" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(directory):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "torchtpu.cli", "cache", "--dir", directory, "ls"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_it_starts_without_torch_and_jax(directory):
    script = ("import runpy, sys; sys.argv = ['torchtpu', 'cache', '--dir', sys.argv[1], 'stats']\n"
              "try: runpy.run_module('torchtpu.cli', run_name='__main__')\n"
              "except SystemExit as left: assert left.code == 0\n"
              "assert not {'torch', 'jax', 'numpy'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 entries" in done.stdout


@pytest.mark.parametrize("text", [
    '{"a":' * 100_000, *(json.dumps({"key": "hostile", "header": {**HEADER, **header}}) for header in (
        {"compile_s": "long"}, {"compile_s": float("nan")}, {"num_nodes": [1]}, {"reason": 3}, {"line": {}}))], ids=range(6))
def test_a_header_that_somebody_else_wrote_is_damaged(directory, capsys, text: str):
    """Its checksum is right, but it would end the listing, or spoil the sums."""
    text_bytes = text.encode()
    body = cache_entry.MAGIC + len(text_bytes).to_bytes(8, "little") + bytes(8) + text_bytes
    (directory / cache_entry.file_name("hostile")).write_bytes(body + hashlib.sha256(body).digest())
    for action in (["ls"], ["ls", "--json"]):
        assert run("--dir", directory, *action) == 0
        assert "has a header" in capsys.readouterr().out
    assert run("--dir", directory, "stats", "--json") == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["damaged"], stats["compile_s"]) == (1, 3.0)


def test_a_header_says_nothing_to_the_terminal(directory, capsys):
    DiskCache(directory, 1 << 30).put("loud", {**HEADER, "line": "\x1b[31mtrain.py\n:7", "reason": "\x07"}, b"")
    assert run("--dir", directory, "ls") == 0
    out = capsys.readouterr().out
    assert "?[31mtrain.py?:7" in out and out.replace("\n", "").isprintable() and len(out.splitlines()) == 4
