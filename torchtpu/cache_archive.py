"""Entries of the cache of compiled programs as one tar file: the same bytes for the same entries, and checked before it is used."""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchtpu.runtime import cache_entry
from torchtpu.runtime.cache_entry import DamagedEntryError
from torchtpu.runtime.disk_cache import DiskCache

Refused = list[tuple[str, str]]  # a name, and what is wrong with it
_NAME = re.compile(r"[0-9a-f]{64}" + re.escape(cache_entry.SUFFIX))


def pack(directory: str, names: list[str], path: str) -> tuple[int, Refused]:
    """Write the sound ones of these files into a tar file: how many, and what was left out.

    Raises:
        OSError: the tar file cannot be written.
    """
    refused: Refused = []
    target = Path(path).absolute()
    packed = 0
    # Written beside and renamed: whoever finds the file finds all of it.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
        new = Path(beside, "new")
        with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(names):
                try:
                    file = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                    with open(file, "rb") as stream:
                        num_bytes = os.fstat(file).st_size
                        _checked(name, stream, num_bytes)
                        stream.seek(0)
                        member = tarfile.TarInfo(name)  # nobody's, of 1970
                        member.size, member.mode = num_bytes, 0o600
                        archive.addfile(member, stream)
                        packed += 1
                except DamagedEntryError as error:
                    refused.append((name, str(error)))
        new.rename(target)
    return packed, refused


def check(path: str) -> tuple[list[tuple[str, dict[str, Any]]], Refused]:
    """Names and headers of the entries in a tar file, and what in it is none.

    Raises:
        OSError: the file cannot be read.
    """
    entries: list[tuple[str, dict[str, Any]]] = []
    refused: Refused = []
    try:
        for name, found in _members(path):
            if isinstance(found, str):
                refused.append((name, found))
            else:
                entries.append((name, found[1]))
    except tarfile.TarError as error:
        refused.append(("the archive", f"is not a sound tar file ({error})"))
    return entries, refused


def store(path: str, cache: DiskCache) -> int:
    """Put the entries of a tar file that ``check`` found sound into the cache; how many it took."""
    return sum(not isinstance(found, str) and cache.put(*found) for _, found in _members(path))


def _members(path: str) -> Iterator[tuple[str, tuple[str, dict[str, Any], bytes] | str]]:
    """Of every member its name, and its key, header and payload, or what is wrong with it."""
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            shown = ascii(member.name)[1:-1]
            if not member.isreg() or member.issparse():
                yield shown, "is not a plain file"
                continue
            if not _NAME.fullmatch(member.name):
                yield shown, "is not the name of an entry"
                continue
            stream = archive.extractfile(member)
            assert stream is not None  # it is a plain file
            try:
                yield shown, _checked(member.name, stream, member.size)
            except DamagedEntryError as error:
                yield shown, str(error)


def _checked(name: str, stream: Any, num_bytes: int) -> tuple[str, dict[str, Any], bytes]:
    """The entry under a name.

    Raises:
        DamagedEntryError: it is none, is not whole, or lies under another's name.
    """
    key, header, payload = cache_entry.read_entry(stream, num_bytes)
    if cache_entry.file_name(key) != name:
        raise DamagedEntryError("holds the entry of another name")
    return key, header, payload
