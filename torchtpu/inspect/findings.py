"""From what was counted to what should be done about it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator

from torchtpu.inspect import dynamo
from torchtpu.inspect.report import Finding, Line, Report
from torchtpu.runtime.counters import FallbackRecord, ProgramRecord, SyncRecord, counters

_WORTH_TELLING = 0.01  # of the time, spent waiting at one line
_WORTH_LOADING_AHEAD = 0.05  # of the time, in which the device waited for data at one line
_LIKE_BY_CHANCE = 8  # operators: a shorter program at a new line is not another version of one elsewhere
_KEEPS_BUSY = 8  # launches a read: while the host waits, the device has had enough to do
_OTHER_WORK = ("new", "end", "operators", "order")  # differences that make a program at a new line no version of one elsewhere
_MANY = 5  # programs at one line that have nothing in common

_FOR_DIFFERENCE = {
    "new": "Give this line fewer kinds of work, or accept one compile for each: later runs load them from disk.",
    "dropped": "Raise TORCHTPU_MAX_PROGRAMS: there are more programs than are kept in memory.",
    "end": "Read values and step optimizers at the same places every time: there programs end.",
    "operators": "Python took another branch: use torch.where, or take every branch once while warming up.",
    "order": "Walk over a list or a dict, which have the same order every time, not over a set.",
    "shape": "Keep shapes the same: drop_last=True for the last batch; pad lengths, or round them up to a few sizes.",
    "dtype": "Bring it to one dtype before it gets here.",
    "argument": "Pass what changes as a tensor, or keep it to a few values.",
    "graph": "torch.compile traced it again; TORCH_LOGS=recompiles names the guard.",
    "wiring": "Use the same tensors in the same places every time: copy into a tensor rather than replace it.",
    "kept": "Drop it before the program ends (zero_grad, del, .detach() on what is collected), or keep it every time.",
    "freed": "Keep it every time, or drop it every time, before the program ends.",
    "memory": "Let the same references live every time: a copy, a list or a closure held this one.",
    "numbers": "Nothing, if it is once; else pass these numbers as tensors.",
}
_FOR_REASON = {
    "size limit": "Read a value or call torch.tpu.synchronize() once a step, or raise TORCHTPU_MAX_NODES.",
    "value of another program": "Let one thread record what belongs together, or join the threads before using their tensors.",
    "strict mode": "Use the fused mode: this one runs one program an operator, for comparing.",
    "debug mode": "Use the fused mode: this one waits after every operator, for finding a bad line.",
}
_FOR_DYNAMIC = "Its shape depends on values: use a mask and torch.where, or torch.nonzero_static, so that nothing is read."
_FOR_READ = "Read it every so many steps, or collect .detach() and read once after the loop."
_FOR_FALLBACK = "`torchtpu where {op}` says why it has no rule: use other operators, or do it on the CPU before or after the loop."
_FOR_DATA = "Load ahead, with `torchtpu.data.prefetch(loader, device)` and more workers: DataLoader(..., num_workers=...)."
_FOR_GRADIENTS = "Call zero_grad() (with set_to_none, its default) between step() and the next read or forward pass."


def explain() -> Report:
    """What made the program slow since the start of the process or ``reset_counters``, by user line; ``str()`` of it is the text.

    Compiles with their difference from the nearest known program, waits of the host, fallbacks, waits for data, gradients kept for
    nothing, graph breaks and failed guards of ``torch.compile``; each with the time it took and one suggestion.
    """
    elapsed_s = time.perf_counter() - counters.start_s
    records = [record for record in list(counters.programs) if record.end_s >= counters.start_s]
    syncs, fallbacks = dict(counters.syncs), dict(counters.fallbacks)
    found = [
        *_compiles(records), *_reads(syncs, elapsed_s), *_fallbacks(fallbacks), *_loading(elapsed_s), *_gradients(records),
        *_boundaries(records), *dynamo.findings(elapsed_s)]
    totals = {
        "compiles": counters.compiles, "compile_s": counters.compile_s, "disk_hits": counters.disk_hits,
        "launches": counters.launches, "reads": sum(sync.whats.total() for sync in syncs.values()),
        "wait_s": sum(sync.wait_s for sync in syncs.values()), "fallbacks": sum(f.num_calls for f in fallbacks.values()),
    }
    return Report(elapsed_s, totals, tuple(sorted(found, key=lambda f: -f.lost_s)), _lines(records, syncs, fallbacks))


def _by_line(records: list[ProgramRecord]) -> dict[str, list[ProgramRecord]]:
    result: dict[str, list[ProgramRecord]] = {}
    for record in records:
        result.setdefault(record.line, []).append(record)
    return result


def _compiles(records: list[ProgramRecord]) -> Iterator[Finding]:
    for line, here in _by_line([r for r in records if r.difference is not None]).items():
        again = [r for r in here[1:] if _kind(r) != "new"]
        if _kind(here[0]) not in _OTHER_WORK and here[0].num_nodes >= _LIKE_BY_CHANCE:
            again.insert(0, here[0])
        if again and _follows_first_step(here, again[0]):
            again = again[1:]
        fresh = [r for r in here if _kind(r) == "new"]
        if not again and len(fresh) < _MANY:
            continue
        told = again or fresh[1:]
        cost: Counter[str] = Counter()
        for record in told:
            cost[_kind(record)] += record.compile_s  # type: ignore[assignment]
        yield Finding(
            "compiles", line, sum(r.compile_s for r in told),
            f"compiled {len(told)} more programs than one" if len(told) > 1 else "compiled one more program",
            _FOR_DIFFERENCE[cost.most_common(1)[0][0]],
            tuple(f"{r.compile_s:.2f} s, {r.num_nodes} operator{'s' * (r.num_nodes != 1)}: {r.difference.text}"
                  for r in told if r.difference is not None))


def _follows_first_step(here: list[ProgramRecord], record: ProgramRecord) -> bool:
    """Whether it took the place of a program that ran once: a first step that made what later steps find, such as momentum."""
    first = here[0]
    return record in here[1:2] and first.num_launches == 1 and _kind(record) == "operators"


def _kind(record: ProgramRecord) -> str:
    return record.difference.kind if record.difference is not None else ""


def _reads(syncs: dict[str, SyncRecord], elapsed_s: float) -> Iterator[Finding]:
    for line, sync in syncs.items():
        num_reads = sync.whats.total()
        often = counters.launches < _KEEPS_BUSY * num_reads
        if num_reads > 1 and often and sync.wait_s >= _WORTH_TELLING * elapsed_s:
            whats = ", ".join(f"{what} {count}x" for what, count in sync.whats.items())
            dynamic = any("::" in what for what in sync.whats)
            yield Finding(
                "reads", line, sync.wait_s, f"waited {sync.wait_s:.2f} s for the device in {num_reads} reads ({whats})",
                _FOR_DYNAMIC if dynamic else _FOR_READ)


def _fallbacks(fallbacks: dict[tuple[str, str], FallbackRecord]) -> Iterator[Finding]:
    for (op, line), record in fallbacks.items():
        yield Finding(
            "fallback", line, record.cpu_s, f"ran {op} on the CPU {record.num_calls}x ({record.cpu_s:.2f} s)",
            _FOR_FALLBACK.format(op=op))


def _loading(elapsed_s: float) -> Iterator[Finding]:
    for line, record in list(counters.loading.items()):
        if record.num_batches > 1 and record.starved_s >= _WORTH_LOADING_AHEAD * elapsed_s:
            yield Finding(
                "data", line, record.starved_s,
                f"waited {record.starved_s:.2f} s for {record.num_batches} batches while the device had nothing to do", _FOR_DATA)


def _gradients(records: list[ProgramRecord]) -> Iterator[Finding]:
    """Told once a line, of programs that ran again: after the last step nobody minds."""
    for line, here in _by_line([r for r in records if r.num_kept_gradients and r.num_launches > 1]).items():
        largest = max(here, key=lambda r: r.kept_gradients_bytes)
        yield Finding(
            "gradients", line, 0.0,
            f"kept {largest.num_kept_gradients} gradients ({largest.kept_gradients_bytes / 2**20:.1f} MiB) that the step had used: "
            "they are results of its program, and take memory", _FOR_GRADIENTS)


def _boundaries(records: list[ProgramRecord]) -> Iterator[Finding]:
    for line, here in _by_line([r for r in records if not r.fills]).items():
        launches: Counter[str] = Counter()
        for record in here:
            launches[record.reason] += record.num_launches
        for reason, suggestion in _FOR_REASON.items():
            if launches[reason]:
                yield Finding("boundary", line, 0.0, f"cut the program {launches[reason]}x: {reason}", suggestion)


def _lines(
    records: list[ProgramRecord], syncs: dict[str, SyncRecord], fallbacks: dict[tuple[str, str], FallbackRecord],
) -> dict[str, Line]:
    programs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    launches: defaultdict[str, Counter[str]] = defaultdict(Counter)
    compile_s: defaultdict[str, float] = defaultdict(float)
    calls: defaultdict[str, dict[str, int]] = defaultdict(dict)
    fallback_s: defaultdict[str, float] = defaultdict(float)
    for record in records:
        programs[record.line][record.reason] += 1
        launches[record.line][record.reason] += record.num_launches
        compile_s[record.line] += record.compile_s if record.source == "compiled" else 0.0
    for (op, line), fallback in fallbacks.items():
        calls[line][op] = fallback.num_calls
        fallback_s[line] += fallback.cpu_s
    nothing = SyncRecord()
    return {
        line: Line(dict(programs[line]), dict(launches[line]), compile_s[line], dict(syncs.get(line, nothing).whats),
                   syncs.get(line, nothing).wait_s, calls[line], fallback_s[line])
        for line in sorted({*programs, *syncs, *calls})}
