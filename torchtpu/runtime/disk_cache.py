"""Compiled programs on disk: a directory of checked files that several processes may share and any of them may die in.

An entry is one file (cache_entry.py), written under a temporary name and renamed, so that readers see whole files only. Nothing
here is unpickled. Payloads are native code, and pickled graphs, so the directory has to belong to the user and be writable by
nobody else. Whatever is wrong with a file or the disk costs a recompile and one warning a kind, never an error: programs go on
without a cache.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import secrets
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torchtpu import flags
from torchtpu.runtime.cache_entry import SUFFIX, DamagedEntryError, encode, file_name, read_entry

_TEMPORARY = ".writing-"
_EMPTY_TEMPORARY_AGE_S = 60.0
"""Age at which a temporary file that is still empty counts as left behind: its writer may not have locked it before."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ELSEWHERE = "Set TORCHTPU_CACHE_DIR to another directory, or TORCHTPU_CACHE=0."

_told: set[str] = set()
_told_lock = threading.Lock()


class CacheWarning(UserWarning):
    """The cache of compiled programs is damaged, or cannot be used; programs are compiled again."""


class _Stored(NamedTuple):
    """A file of ours in the directory: what eviction looks at."""

    used_ns: int
    num_bytes: int
    path: str


def default_directory() -> Path:
    """Where programs are kept: ``TORCHTPU_CACHE_DIR``, else ``torchtpu/programs`` in the user's cache directory."""
    chosen = flags.get("TORCHTPU_CACHE_DIR")
    if chosen:
        return Path(os.path.expanduser(chosen))
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # the XDG specification says to ignore a relative path
        cache = os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):  # a user without a home, as in some containers
        cache = os.path.join(tempfile.gettempdir(), f"cache-of-user-{os.geteuid()}")
    return Path(cache, "torchtpu", "programs")


def _tell(kind: str, message: str) -> None:
    """Warn once a process for each kind of trouble."""
    with _told_lock:
        is_new = kind not in _told
        _told.add(kind)
    if is_new:
        warnings.warn(f"Cache of compiled programs: {message}", CacheWarning, stacklevel=4)


class DiskCache:
    """Entries by key, at most ``max_bytes`` of them, the least recently used dropped first.

    Several processes may write and read one directory. The bound holds once all writers are done; entries being
    written at the same moment may exceed it until then.
    """

    def __init__(self, directory: str | os.PathLike[str], max_bytes: int) -> None:
        # Resolved once, so that a link changed later leads nowhere else than what was checked.
        self._directory = os.path.realpath(directory)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._counts: dict[str, int] = dict.fromkeys(("hits", "misses", "puts", "evicted", "damaged"), 0)
        self._readable = False
        self._writable = False
        self._open()

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Header and payload of an entry; None if there is none, or none that is sound."""
        found = self._get(key) if self._readable else None
        self._count("misses" if found is None else "hits")
        return found

    def put(self, key: str, header: dict[str, Any], payload: bytes) -> bool:
        """Store an entry, in place of an older one; False if it was not stored.

        Raises:
            TypeError: the header is not JSON.
        """
        if not self._writable:
            return False
        blob = encode(key, header, payload)
        if len(blob) > self._max_bytes:
            _tell("size", f"an entry of {len(blob)} bytes is larger than the whole cache may be "
                          f"({self._max_bytes} bytes). Raise TORCHTPU_CACHE_MAX_BYTES to keep it.")
            return False
        try:
            try:
                self._store(key, blob)
            except FileNotFoundError:  # somebody removed the directory: make it again, once
                self._open()
                if not self._writable:
                    return False
                self._store(key, blob)
        except OSError as error:
            self._stop_writing(error)
            return False
        self._count("puts")
        return True

    def stats(self) -> dict[str, Any]:
        """What is stored now and what this object did."""
        stored = [entry for entry in self._scan() if entry.path.endswith(SUFFIX)]
        return {
            "directory": self._directory,
            "readable": self._readable,
            "writable": self._writable,
            "entries": len(stored),
            "bytes": sum(entry.num_bytes for entry in stored),
            "max_bytes": self._max_bytes,
            **self._counts,
        }

    def clear(self) -> None:
        """Remove every entry; other files in the directory stay."""
        for entry in self._scan():
            if entry.path.endswith(SUFFIX):
                self._remove(entry.path)
        self._sweep()

    # The directory.

    def _open(self) -> None:
        """Make the directory and check whose it is; what fails leaves the cache off."""
        self._readable = self._writable = False
        try:
            os.makedirs(os.path.dirname(self._directory), exist_ok=True)
            with contextlib.suppress(FileExistsError):  # checked below, whoever made it
                os.mkdir(self._directory, 0o700)
            status = os.stat(self._directory)
        except OSError as error:
            self._refuse(f"cannot be used ({error.strerror})")
            return
        if not stat.S_ISDIR(status.st_mode):
            wrong = "is not a directory"
        elif status.st_uid != os.geteuid():
            wrong = f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            wrong = "is writable by other users (chmod 700 it if you trust what it holds)"
        else:
            self._readable = self._writable = True
            self._sweep()
            return
        self._refuse(wrong)

    def _refuse(self, why: str) -> None:
        _tell("directory", f"{self._directory} {why}; programs are not kept on disk. {_ELSEWHERE}")

    def _stop_writing(self, error: OSError) -> None:
        self._writable = False
        why = "the disk is full" if error.errno in _NO_SPACE else error.strerror
        _tell(f"write {error.errno}",
              f"cannot write to {self._directory} ({why}); new programs are not kept. {_ELSEWHERE}")

    def _path(self, key: str) -> str:
        return os.path.join(self._directory, file_name(key))

    def _scan(self) -> list[_Stored]:
        """The entries and temporary files in the directory."""
        return [] if not self._readable else list(self._walk())

    def _walk(self) -> Iterator[_Stored]:
        try:
            with os.scandir(self._directory) as listing:
                for item in listing:
                    if not item.name.endswith(SUFFIX) and not item.name.startswith(_TEMPORARY):
                        continue
                    try:
                        status = item.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # another process dropped it
                    yield _Stored(status.st_mtime_ns, status.st_size, item.path)
        except FileNotFoundError:
            return  # the directory was removed: it holds nothing
        except OSError as error:
            _tell(f"list {error.errno}",
                  f"cannot list {self._directory} ({error.strerror}); old programs are not dropped.")

    def _remove(self, path: str) -> bool:
        """Remove a file; whether it is gone."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # another process was faster
        except OSError as error:
            _tell(f"remove {error.errno}", f"cannot remove {path} ({error.strerror}).")
            return False
        return True

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    # Reading.

    def _get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        path = self._path(key)
        try:
            # Neither follow a link nor wait for the other end of a pipe.
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._drop_damaged(path, "is a link")
            else:
                _tell(f"read {error.errno}", f"cannot read {path} ({error.strerror}); the program is compiled again.")
            return None
        try:
            found = _decode(key, file)
            if self._writable:
                self._note_use(file)
            return found
        except DamagedEntryError as error:
            self._drop_damaged(path, str(error))
        except OSError as error:
            _tell(f"read {error.errno}", f"cannot read {path} ({error.strerror}); the program is compiled again.")
        finally:
            os.close(file)
        return None

    def _note_use(self, file: int) -> None:
        try:
            _touch(file)
        except OSError as error:
            self._stop_writing(error)

    def _drop_damaged(self, path: str, why: str) -> None:
        self._count("damaged")
        fate = "it was removed" if self._remove(path) else "it could not be removed"
        _tell("damaged", f"the entry {path} {why}; {fate} and the program is compiled again.")

    # Writing.

    def _store(self, key: str, blob: bytes) -> None:
        self._make_room(len(blob))
        temporary = os.path.join(self._directory, f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                # Held until the file has its name: whoever can lock a temporary file knows that its writer is dead.
                fcntl.flock(file, fcntl.LOCK_EX)
                rest = memoryview(blob)
                while rest:
                    rest = rest[os.write(file, rest):]
                _touch(file)
                os.replace(temporary, self._path(key))
            finally:
                os.close(file)
        except BaseException:
            self._remove(temporary)
            raise
        self._make_room(0)  # others may have written meanwhile; the last one sees all

    def _make_room(self, num_bytes: int) -> None:
        """Drop the least recently used entries until ``num_bytes`` more fit."""
        stored = self._scan()
        total = sum(entry.num_bytes for entry in stored) + num_bytes
        if total > self._max_bytes and any(_TEMPORARY in entry.path for entry in stored):
            self._sweep()
            stored = self._scan()
            total = sum(entry.num_bytes for entry in stored) + num_bytes
        for entry in sorted(stored):
            if total <= self._max_bytes:
                return
            if entry.path.endswith(SUFFIX) and self._remove(entry.path):
                self._count("evicted")
                total -= entry.num_bytes

    def _sweep(self) -> None:
        """Remove temporary files whose writers died."""
        for entry in self._scan():
            if entry.path.endswith(SUFFIX):
                continue
            try:
                file = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # its writer finished
            except OSError as error:
                _tell(f"sweep {error.errno}", f"cannot open {entry.path} ({error.strerror}); it stays.")
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if entry.num_bytes or time.time_ns() - entry.used_ns > _EMPTY_TEMPORARY_AGE_S * 1e9:
                    self._remove(entry.path)
            except BlockingIOError:
                pass  # being written
            except OSError as error:
                _tell(f"sweep {error.errno}", f"cannot lock {entry.path} ({error.strerror}); it stays.")
            finally:
                os.close(file)


@functools.cache
def of_process() -> DiskCache | None:
    """The cache that the environment variables describe; None if they turn it off."""
    if not flags.get("TORCHTPU_CACHE"):
        return None
    return DiskCache(default_directory(), flags.get("TORCHTPU_CACHE_MAX_BYTES"))


def _touch(file: int) -> None:
    """Note the use of an entry; the kernel's own time stamps are too coarse to order by."""
    now = time.time_ns()
    os.utime(file, ns=(now, now))


def _decode(key: str, file: int) -> tuple[dict[str, Any], bytes]:
    """Header and payload of an open entry.

    Raises:
        DamagedEntryError: it is not the entry of this key, or not whole.
        OSError: it cannot be read.
    """
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedEntryError("is not a file")
    if status.st_uid != os.geteuid():
        raise DamagedEntryError(f"belongs to user {status.st_uid}")
    with open(file, "rb", closefd=False) as stream:
        stored_key, header, payload = read_entry(stream, status.st_size)
    if stored_key != key:
        raise DamagedEntryError("holds another key")
    return header, payload
