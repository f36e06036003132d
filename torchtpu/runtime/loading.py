"""How long loops waited for their loaders, by user line."""

from __future__ import annotations

import threading
import time

from torchtpu import _C
from torchtpu.runtime.counters import counters
from torchtpu.runtime.user_code import user_line


class _Thread(threading.local):
    in_background = False


_thread = _Thread()


def enter_background() -> None:
    """This thread loads ahead: from here on, what it waits for keeps nobody waiting."""
    _thread.in_background = True


def note_wait(start_s: float, is_first: bool, is_tpu: bool = True) -> tuple[float, float]:
    """A batch that was asked for at ``start_s`` (``time.perf_counter``) has come.

    Returns the seconds waited, and those of them that count as a standstill of the device: all, unless it still has work now. The
    first batch of an epoch, for which workers are started, is not counted by line.
    """
    wait_s = time.perf_counter() - start_s
    starved_s = 0.0 if is_tpu and not _is_idle() else wait_s
    if not (_thread.in_background or is_first):
        record = counters.loading[user_line()]
        record.num_batches += 1
        record.wait_s += wait_s
        record.starved_s += starved_s
    return wait_s, starved_s


def _is_idle() -> bool:
    if not _C.started() or _C.in_bad_fork():
        return True
    from torchtpu.runtime import in_flight

    return all(in_flight.is_idle(device) for device in range(_C.started()))
