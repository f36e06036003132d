"""One compiled program as a file: magic, two lengths, a JSON header, the payload, and a SHA-256 over all of it."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import IO, Any

MAGIC = b"torchtpu program 1\n"
SUFFIX = ".program"
_LENGTHS = struct.Struct("<QQ")  # header, payload
_PREFIX_BYTES = len(MAGIC) + _LENGTHS.size
_KINDS = {"num_nodes": (int,), "compile_s": (float, int), "reason": (str,), "line": (str,)}  # of what is listed and added up
_DIGEST_BYTES = hashlib.sha256().digest_size


class DamagedEntryError(ValueError):
    """A file under an entry's name does not hold that entry."""


def encode(key: str, header: dict[str, Any], payload: bytes) -> bytes:
    """The bytes of an entry."""
    text = json.dumps({"key": key, "header": header}, sort_keys=True).encode()
    body = b"".join((MAGIC, _LENGTHS.pack(len(text), len(payload)), text, payload))
    return body + hashlib.sha256(body).digest()


def read_entry(stream: IO[bytes], num_bytes: int) -> tuple[str, dict[str, Any], bytes]:
    """Key, header and payload of the entry that a stream of ``num_bytes`` holds.

    Raises:
        DamagedEntryError: it is no entry, or not whole.
        OSError: it cannot be read.
    """
    prefix, text, payload_bytes = _read_front(stream, num_bytes)
    payload, digest = stream.read(payload_bytes), stream.read(_DIGEST_BYTES)
    check = hashlib.sha256(prefix)
    check.update(text)
    check.update(payload)
    if check.digest() != digest:
        raise DamagedEntryError("fails its checksum")
    return *_parsed(text), payload


def read_header(stream: IO[bytes], num_bytes: int) -> dict[str, Any]:
    """The header alone, of an entry whose checksum nobody looks at: for listing, not for running.

    Raises:
        DamagedEntryError: it is no entry, or cut short.
        OSError: it cannot be read.
    """
    return _parsed(_read_front(stream, num_bytes)[1])[1]


def _read_front(stream: IO[bytes], num_bytes: int) -> tuple[bytes, bytes, int]:
    """The bytes before the header, its text, and how long the payload is."""
    prefix = stream.read(_PREFIX_BYTES)
    if not prefix.startswith(MAGIC):
        raise DamagedEntryError("was not written by this cache")
    if len(prefix) < _PREFIX_BYTES:
        raise DamagedEntryError("is cut short")
    header_bytes, payload_bytes = _LENGTHS.unpack_from(prefix, len(MAGIC))
    if num_bytes != _PREFIX_BYTES + header_bytes + payload_bytes + _DIGEST_BYTES:
        raise DamagedEntryError("is cut short, or too long")
    # Only now is it certain that the file's own size bounds what is read.
    return prefix, stream.read(header_bytes), payload_bytes


def _parsed(text: bytes) -> tuple[str, dict[str, Any]]:
    """Key and header. A checksum is no signature: what somebody else wrote may hold anything."""
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedEntryError("has a header that is not JSON") from error
    if not isinstance(stored, dict) or not isinstance(stored.get("key"), str) or not isinstance(stored.get("header"), dict):
        raise DamagedEntryError("has a header without a key")
    for name, kinds in _KINDS.items():
        value = stored["header"].get(name)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, float) and not math.isfinite(value))):
            raise DamagedEntryError(f"has a header whose {name} is no {kinds[0].__name__}")
    return stored["key"], stored["header"]


def file_name(key: str) -> str:
    """The name of the file that holds an entry."""
    return hashlib.sha256(key.encode()).hexdigest() + SUFFIX
