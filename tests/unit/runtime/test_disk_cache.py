"""The cache on disk: damage, full and forbidden disks, many processes, and processes killed while they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from torchtpu.runtime import cache_entry, disk_cache
from torchtpu.runtime.disk_cache import CacheWarning, DiskCache, default_directory

ROOT = Path(__file__).resolve().parents[3]
BIG = 1 << 30


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    """Each test warns like a new process."""
    monkeypatch.setattr(disk_cache, "_told", set())


@pytest.fixture
def tmpfs(tmp_path):
    """A real file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def entries(directory: Path) -> list[Path]:
    return sorted(directory.glob("*" + cache_entry.SUFFIX))


def temporaries(directory: Path) -> list[Path]:
    return [p for p in directory.iterdir() if p.name.startswith(disk_cache._TEMPORARY)]


def start(script: str, *args: object) -> subprocess.Popen:
    """A process of its own that runs ``script`` with every warning an error."""
    return subprocess.Popen([sys.executable, "-W", "error", "-c", script, *map(str, args)], cwd=ROOT,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_is_put_is_got(tmp_path):
    cache = DiskCache(tmp_path / "a" / "b", BIG)
    assert cache.get("k") is None
    assert cache.put("k", {"n": [1, 2.5, None], "s": "é"}, b"\0payload")
    assert cache.get("k") == ({"n": [1, 2.5, None], "s": "é"}, b"\0payload")
    assert cache.put("k", {}, b"")
    assert DiskCache(tmp_path / "a" / "b", BIG).get("k") == ({}, b"")
    stats = cache.stats()
    assert (stats["entries"], stats["hits"], stats["misses"], stats["puts"]) == (1, 1, 1, 2)
    assert stats["bytes"] == entries(tmp_path / "a" / "b")[0].stat().st_size
    cache.clear()
    assert cache.get("k") is None
    assert cache.stats()["entries"] == 0


def test_the_directory_and_its_files_are_private(tmp_path):
    cache = DiskCache(tmp_path / "c", BIG)
    cache.put("k", {}, b"x")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert entries(tmp_path / "c")[0].stat().st_mode & 0o777 == 0o600
    assert not temporaries(tmp_path / "c")


def test_a_header_that_is_not_json_is_the_callers_error(tmp_path):
    with pytest.raises(TypeError):
        DiskCache(tmp_path / "c", BIG).put("k", {"x": object()}, b"")
    assert list((tmp_path / "c").iterdir()) == []


def flip_a_byte(data: bytes) -> bytes:
    middle = len(data) - 40
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]


@pytest.mark.parametrize(("spoil", "why"), [
    (flip_a_byte, "fails its checksum"),
    (lambda data: data[:len(data) // 2], "is cut short"),
    (lambda data: data[:25], "is cut short"),
    (lambda data: b"", "was not written by this cache"),
    (lambda data: data + b"x", "too long"),
    (lambda data: b"\x80\x04pickle of somebody else", "was not written by this cache"),
    (lambda data: data[:19] + b"\xff" * 16 + data[35:], "is cut short, or too long"),
    (lambda data: cache_entry.encode("another key", {}, b"x"), "holds another key"),
], ids=["flipped byte", "half a file", "a prefix", "empty", "longer", "foreign", "absurd lengths", "other key"])
def test_a_damaged_entry_is_told_once_and_removed(tmp_path, spoil, why):
    cache = DiskCache(tmp_path / "c", BIG)
    for key in ("k", "l"):
        cache.put(key, {"h": 1}, b"p" * 1000)
    for path in entries(tmp_path / "c"):
        path.write_bytes(spoil(path.read_bytes()))
    with pytest.warns(CacheWarning, match=why) as caught:
        assert cache.get("k") is None
        assert cache.get("l") is None
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert not entries(tmp_path / "c")
    assert cache.stats()["damaged"] == 2
    assert cache.put("k", {}, b"again")
    assert cache.get("k") == ({}, b"again")


def test_links_pipes_and_directories_under_an_entrys_name_are_not_followed(tmp_path):
    cache = DiskCache(tmp_path / "c", BIG)
    cache.put("target", {}, b"x")
    target = entries(tmp_path / "c")[0]
    os.symlink(target, cache._path("link"))
    os.mkfifo(cache._path("pipe"))
    os.mkdir(cache._path("directory"))
    with pytest.warns(CacheWarning) as caught:
        assert [cache.get(key) for key in ("link", "pipe", "directory")] == [None] * 3
    assert ["is a link" in str(caught[0].message), "cannot remove" in str(caught[1].message)] == [True, True]
    assert cache.get("target") == ({}, b"x")
    assert entries(tmp_path / "c") == sorted([target, Path(cache._path("directory"))])


def test_files_of_others_in_the_directory_stay(tmp_path):
    directory = tmp_path / "c"
    cache = DiskCache(directory, 2000)
    (directory / "notes.txt").write_text("mine" * 1000)
    for k in range(5):
        cache.put(str(k), {}, bytes(600))
    cache.clear()
    assert [p.name for p in directory.iterdir()] == ["notes.txt"]


def test_the_least_recently_used_entries_are_dropped(tmp_path):
    one = len(cache_entry.encode("0", {}, bytes(1000)))
    cache = DiskCache(tmp_path / "c", 4 * one)
    for k in range(4):
        assert cache.put(str(k), {}, bytes(1000))
    assert cache.get("0") is not None  # now the newest
    assert cache.put("4", {}, bytes(1000))
    assert [k for k in range(5) if cache.get(str(k))] == [0, 2, 3, 4]
    assert cache.put("5", {}, bytes(2 * one - len(cache_entry.encode("5", {}, b"")) - 2))
    assert [k for k in range(6) if cache.get(str(k))] == [3, 4, 5]
    assert cache.stats()["bytes"] <= 4 * one
    assert cache.stats()["evicted"] == 3


def test_an_entry_larger_than_the_cache_is_not_stored(tmp_path):
    cache = DiskCache(tmp_path / "c", 1000)
    assert cache.put("small", {}, b"x")
    with pytest.warns(CacheWarning, match="TORCHTPU_CACHE_MAX_BYTES") as caught:
        assert not cache.put("k", {}, bytes(1000))
        assert not cache.put("l", {}, bytes(1000))
    assert len(caught) == 1
    assert cache.get("small") == ({}, b"x")


# Directories that cannot or must not be used.


def test_a_file_in_place_of_the_directory_turns_the_cache_off(tmp_path):
    (tmp_path / "file").write_text("x")
    for place, why in ((tmp_path / "file", "is not a directory"), (tmp_path / "file" / "c", "cannot be used")):
        disk_cache._told.clear()
        with pytest.warns(CacheWarning, match=why) as caught:
            cache = DiskCache(place, BIG)
            assert not cache.put("k", {}, b"x")
            assert cache.get("k") is None
        assert len(caught) == 1
        assert not cache.stats()["writable"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_is_refused(tmp_path, mode):
    good = DiskCache(tmp_path / "c", BIG)
    good.put("k", {}, b"x")
    (tmp_path / "c").chmod(mode)
    with pytest.warns(CacheWarning, match="writable by other users") as caught:
        cache = DiskCache(tmp_path / "c", BIG)
        assert cache.get("k") is None
        assert not cache.put("k", {}, b"y")
        cache.clear()
    assert len(caught) == 1
    assert len(entries(tmp_path / "c")) == 1


def test_the_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    DiskCache(tmp_path / "c", BIG).put("k", {}, b"x")
    if os.geteuid() == 0:
        os.chown(tmp_path / "c", 12345, 12345)
    else:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.warns(CacheWarning, match="belongs to user"):
        cache = DiskCache(tmp_path / "c", BIG)
    assert cache.get("k") is None
    assert not cache.put("k", {}, b"y")


def test_the_entry_of_somebody_else_is_refused(tmp_path):
    if os.geteuid():
        pytest.skip("only root can give a file away")
    cache = DiskCache(tmp_path / "c", BIG)
    cache.put("k", {}, b"x")
    os.chown(entries(tmp_path / "c")[0], 12345, 12345)
    with pytest.warns(CacheWarning, match="belongs to user 12345"):
        assert cache.get("k") is None


def test_a_full_disk_turns_writing_off(tmpfs):
    cache = DiskCache(tmpfs / "c", BIG)
    assert cache.put("small", {}, bytes(100_000))
    with pytest.warns(CacheWarning, match="the disk is full") as caught:
        assert not cache.put("large", {}, bytes(2_000_000))
        assert not cache.put("tiny", {}, b"x")
    assert len(caught) == 1
    assert cache.get("small") == ({}, bytes(100_000))
    assert len(list((tmpfs / "c").iterdir())) == 1
    assert not cache.stats()["writable"]


def test_a_read_only_disk_is_read_and_not_written(tmpfs):
    DiskCache(tmpfs / "c", BIG).put("k", {}, b"x")
    subprocess.run(["mount", "-o", "remount,ro", str(tmpfs)], check=True)
    with pytest.warns(CacheWarning, match="Read-only") as caught:
        cache = DiskCache(tmpfs / "c", BIG)
        assert cache.get("k") == ({}, b"x")
        assert cache.get("k") == ({}, b"x")
        assert not cache.put("l", {}, b"y")
    assert len(caught) == 1
    disk_cache._told.clear()
    with pytest.warns(CacheWarning, match="cannot be used"):
        assert not DiskCache(tmpfs / "d", BIG).put("l", {}, b"y")


def test_a_directory_removed_under_a_running_program_is_made_again(tmp_path):
    cache = DiskCache(tmp_path / "c", BIG)
    (tmp_path / "c").rmdir()
    assert cache.get("k") is None
    assert cache.stats()["entries"] == 0
    assert cache.put("k", {}, b"x")
    assert cache.get("k") == ({}, b"x")


# Other processes.

WORKER = """
import random, sys
from torchtpu.runtime.disk_cache import DiskCache
directory, seed, rounds, max_bytes = sys.argv[1], *map(int, sys.argv[2:])
random.seed(seed)
cache = DiskCache(directory, max_bytes)
print("ready", flush=True)
hits = 0
for _ in range(rounds):
    n = random.randrange(12)
    found = cache.get(f"key {n}")
    if found is not None:
        header, payload = found
        assert header["n"] == n and payload == bytes([n]) * header["size"], (header, payload[:8])
        hits += 1
    size = random.randrange(1, 20_000)
    assert cache.put(f"key {n}", {"n": n, "size": size}, bytes([n]) * size)
print(hits, cache.stats()["damaged"])
"""


@pytest.mark.parametrize("max_bytes", [BIG, 60_000], ids=["unbounded", "evicting"])
def test_eight_processes_share_a_directory(tmp_path, max_bytes):
    running = [start(WORKER, tmp_path / "c", seed, 150, max_bytes) for seed in range(8)]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        hits, damaged = map(int, out.split()[1:])
        assert damaged == 0
        assert hits > 20
    stats = DiskCache(tmp_path / "c", max_bytes).stats()
    assert stats["bytes"] <= max_bytes
    assert not temporaries(tmp_path / "c")


def test_processes_killed_while_they_write_leave_nothing_damaged(tmp_path):
    directory = tmp_path / "c"
    left = 0
    for attempt in range(6):
        process = start(WORKER.replace("20_000", "4_000_000"), directory, attempt, 10**6, BIG)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.03 * attempt)
        while attempt == 5 and process.poll() is None and not DiskCache(directory, BIG).stats()["entries"]:
            time.sleep(0.05)  # on a loaded machine nothing may have been written yet
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        left += len(temporaries(directory))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache = DiskCache(directory, BIG)
            for n in range(12):
                found = cache.get(f"key {n}")
                assert found is None or found[1] == bytes([n]) * found[0]["size"]
        assert not temporaries(directory)
    assert cache.stats()["entries"] > 0
    print("temporary files left by the kills:", left)


def test_only_temporary_files_of_the_dead_are_swept(tmp_path):
    directory = tmp_path / "c"
    DiskCache(directory, BIG)
    script = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
os.write(file, b"half an entry")
print("ready", flush=True)
sys.stdin.read() if sys.argv[2:] else os.kill(os.getpid(), 9)
"""
    prefix = str(directory / disk_cache._TEMPORARY)
    dead = start(script, prefix + "dead")
    dead.communicate(timeout=60)
    alive = subprocess.Popen([sys.executable, "-c", script, prefix + "alive", "wait"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert alive.stdout.readline() == b"ready\n"
    (directory / (disk_cache._TEMPORARY + "new")).touch()  # created and not yet locked
    old = directory / (disk_cache._TEMPORARY + "old")
    old.touch()
    os.utime(old, (0, 0))
    DiskCache(directory, BIG)
    assert sorted(p.name.rpartition("-")[2] for p in temporaries(directory)) == ["alive", "new"]
    alive.communicate(timeout=60)
    DiskCache(directory, BIG)
    assert [p.name.rpartition("-")[2] for p in temporaries(directory)] == ["new"]


# The default place.


def test_default_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("TORCHTPU_CACHE_DIR", raising=False)
    assert default_directory() == tmp_path / ".cache" / "torchtpu" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory() == tmp_path / ".cache" / "torchtpu" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_directory() == Path("/somewhere/torchtpu/programs")
    monkeypatch.setenv("TORCHTPU_CACHE_DIR", "~/mine")
    assert default_directory() == tmp_path / "mine"
