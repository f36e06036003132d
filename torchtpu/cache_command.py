"""``torchtpu cache``: the compiled programs on disk, listed, measured, cleared, and carried to other machines.

Starts without PyTorch and JAX. Exit status: 0 done, 1 something was refused or could not be done, 2 a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

from torchtpu import cache_archive, flags
from torchtpu.runtime import cache_entry, disk_cache, installation
from torchtpu.runtime.cache_entry import DamagedEntryError
from torchtpu.runtime.disk_cache import DiskCache

_AGE = re.compile(r"(\d+)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class Entry:
    """One file: its name without the suffix, size, seconds since its last use, and header (empty if ``damage`` says why not)."""

    name: str
    num_bytes: int
    unused_s: float
    header: dict[str, Any]
    damage: str = ""

    @property
    def fits(self) -> bool | None:
        """Whether this installation and processor could use it; None for an entry that does not say."""
        made_with = self.header.get("installation")
        return None if made_with is None else made_with == installation.facts()

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"name": self.name, "bytes": self.num_bytes, "unused_s": round(self.unused_s, 1), "fits": self.fits,
                **({"damage": self.damage} if self.damage else self.header)}


def main(arguments: list[str] | None = None) -> int:
    """Run ``torchtpu cache``; returns its exit status."""
    parsed = _parser().parse_args(arguments)
    directory = os.path.realpath(parsed.dir or disk_cache.default_directory())
    if parsed.action != "unpack" and not os.path.isdir(directory):
        return _complain(f"no cache: {directory} is not a directory")
    with warnings.catch_warnings(record=True) as told:  # the cache warns where a command has to say it in a line
        warnings.simplefilter("always")
        try:
            status: int = parsed.run(directory, parsed)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever reads, such as `head`, has seen enough; nothing is written at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except OSError as error:
            status = _complain(f"{error.filename or directory}: {error.strerror or error}")
    for warning in told:
        status = _complain(str(warning.message))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchtpu cache", description="The compiled programs on disk.")
    parser.add_argument("--dir", help="the directory (default: TORCHTPU_CACHE_DIR, or torchtpu/programs in the user's cache)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ls|stats|clear|pack|unpack")

    def add(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text, description=text)
        action.set_defaults(run=run)
        return action

    add("ls", _list, "a line an entry, the one used last first").add_argument("--json", action="store_true")
    add("stats", _stats, "how many there are, and how large").add_argument("--json", action="store_true")
    clear = add("clear", _clear, "remove entries")
    clear.add_argument("--older-than", metavar="AGE", type=_age, default=0.0, help="only those unused for so long: 7d, 12h, 30m")
    clear.add_argument("--yes", action="store_true", help="do not ask")
    add("pack", _pack, "write all sound entries into a tar file, the same bytes for the same entries").add_argument("file")
    add("unpack", _unpack, "add the entries of a tar file that pack wrote, or none of them if one is not sound. They are "
        "programs that will run as you: unpack only what you trust.").add_argument("file")
    return parser


def _age(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a number and s, m, h, d or w, such as 7d; got {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def _complain(text: str) -> int:
    print(f"torchtpu cache: {text}", file=sys.stderr)
    return 1


def _entries(directory: str) -> list[Entry]:
    """What the directory holds, the one used last first."""
    now = time.time()
    found = []
    with os.scandir(directory) as listing:
        for item in listing:
            if item.name.endswith(cache_entry.SUFFIX):
                status = item.stat(follow_symlinks=False)
                header, damage = {}, ""
                try:
                    file = os.open(item.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                    with open(file, "rb") as stream:
                        header = cache_entry.read_header(stream, status.st_size)
                except DamagedEntryError as error:
                    damage = str(error)
                except OSError as error:
                    damage = f"cannot be read ({error.strerror})"
                name = item.name.removesuffix(cache_entry.SUFFIX)
                found.append(Entry(name, status.st_size, max(now - status.st_mtime, 0.0), header, damage))
    return sorted(found, key=lambda entry: (entry.unused_s, entry.name))


def _size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            break
        num_bytes /= 1024
    return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"


def _plain(text: str) -> str:
    """Without what a terminal would obey: the text may be anybody's."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _span(seconds: float) -> str:
    unit = next((unit for unit in "wdhm" if seconds >= 2 * _SECONDS[unit]), "s")
    return f"{seconds / _SECONDS[unit]:.0f}{unit}"


def _list(directory: str, parsed: argparse.Namespace) -> int:
    entries = _entries(directory)
    if parsed.json:
        print(json.dumps([entry.as_dict() for entry in entries], indent=1))
        return 0
    row = "{:<12}  {:>9}  {:>5}  {:>6}  {:>9}  {:<5}  {:<18}  {}"
    print(row.format("entry", "size", "used", "ops", "compile_s", "fits", "reason", "line"))
    for e in entries:
        if e.damage:
            print(row.format(_plain(e.name[:12]), _size(e.num_bytes), _span(e.unused_s), "-", "-", "no", "damaged", e.damage))
            continue
        fits = {True: "yes", False: "no", None: "-"}[e.fits]
        shown = (str(e.header.get(name, "-")) for name in ("num_nodes", "compile_s"))
        print(row.format(_plain(e.name[:12]), _size(e.num_bytes), _span(e.unused_s), *shown, fits,
                         _plain(e.header.get("reason", "-")), _plain(e.header.get("line", "-"))))
    return 0


def _stats(directory: str, parsed: argparse.Namespace) -> int:
    entries = _entries(directory)
    stats = {
        "directory": directory, "writable": os.access(directory, os.W_OK), "entries": len(entries),
        "bytes": sum(e.num_bytes for e in entries), "max_bytes": flags.get("TORCHTPU_CACHE_MAX_BYTES"),
        "fit": sum(e.fits is True for e in entries), "damaged": sum(bool(e.damage) for e in entries),
        "compile_s": round(sum(e.header.get("compile_s", 0.0) for e in entries), 3), "installation": installation.versions(),
    }
    if parsed.json:
        print(json.dumps(stats, indent=1))
        return 0
    print(f"{directory}{'' if stats['writable'] else ' (read-only)'}")
    print(f"{len(entries)} entries, {_size(stats['bytes'])} of at most {_size(stats['max_bytes'])}; "
          f"{stats['fit']} fit this installation, {stats['damaged']} are damaged")
    print(f"they took {stats['compile_s']:.1f} s to compile")
    return 0


def _clear(directory: str, parsed: argparse.Namespace) -> int:
    old = [e for e in _entries(directory) if e.unused_s >= parsed.older_than]
    if not parsed.yes:
        if not sys.stdin.isatty():
            _complain(f"{len(old)} entries of {directory} would be removed: say --yes")
            return 2
        if input(f"Remove {len(old)} entries of {directory}? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    for entry in old:
        os.unlink(os.path.join(directory, entry.name + cache_entry.SUFFIX))
    print(f"removed {len(old)} entries, {_size(sum(e.num_bytes for e in old))}")
    return 0


def _pack(directory: str, parsed: argparse.Namespace) -> int:
    names = [e.name + cache_entry.SUFFIX for e in _entries(directory)]
    packed, refused = cache_archive.pack(directory, names, parsed.file)
    for name, why in refused:
        _complain(f"{_plain(name)} {why}: left out")
    print(f"packed {packed} entries into {parsed.file}")
    return 1 if refused else 0


def _unpack(directory: str, parsed: argparse.Namespace) -> int:
    entries, refused = cache_archive.check(parsed.file)
    for name, why in refused:
        _complain(f"{parsed.file}: {name} {why}")
    if refused:
        return _complain(f"{parsed.file}: nothing was unpacked")
    limit = flags.get("TORCHTPU_CACHE_MAX_BYTES")
    cache = DiskCache(directory, limit)
    if not cache.stats()["writable"]:
        return 1
    is_new = [not os.path.exists(os.path.join(directory, name)) for name, _ in entries]
    stored = cache_archive.store(parsed.file, cache)
    other = sum(header.get("installation") != installation.facts() for _, header in entries)
    print(f"unpacked {stored} entries into {directory}: {sum(is_new)} new, {other} for other versions or processors than these")
    if cache.stats()["evicted"]:
        return _complain(f"older entries were dropped: together they are larger than TORCHTPU_CACHE_MAX_BYTES ({limit})")
    return 0 if stored == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
