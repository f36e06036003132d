"""What the C++ core asks of Python. One method for each question; everything heavy is imported when it is first asked.

The core calls with the GIL and without its own lock. Method names are those in csrc/device/Host.h and csrc/record/Lowering.h.
"""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any

from torchtpu import errors, flags
from torchtpu.runtime import stopwatch
from torchtpu.runtime.counters import counters
from torchtpu.runtime.user_code import stack_level, user_line


class FallbackWarning(UserWarning):
    """An operator ran on the CPU, because it has neither a rule nor a decomposition."""


class Bridge:
    """Answers for the core. There is one, made at registration."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.devices: list[Any] = []
        self.kind = ""
        self._starting = threading.RLock()
        self._resolving = threading.RLock()
        self._mode_is_read = False
        self._watch = stopwatch.Stopwatch()

    # ---- starting ----

    def start(self, device: int, forked: bool) -> None:
        if forked:
            raise errors.ForkedProcessError(what=f"tpu:{device}")
        with self._starting:
            if not self.devices:
                self._start()
        if not 0 <= device < len(self.devices):
            raise errors.DeviceIndexError(
                index=device, count=len(self.devices),
                fix="Set TORCHTPU_CPU_DEVICES to emulate several." if self.kind == "cpu" else "Use an index that exists.")

    def _start(self) -> None:
        from torchtpu.runtime import layouts, platform, step_hooks, transfers

        started = platform.start()
        self.read_mode()
        self.core.set_max_nodes(flags.get("TORCHTPU_MAX_NODES"))
        self.core.set_max_programs(flags.get("TORCHTPU_MAX_PROGRAMS"))
        self.core.set_upload_type(transfers.Upload)
        step_hooks.install(self.core)
        layouts.refuse_others()
        self.kind, self.devices = started.kind, started.devices
        self.core.set_available(True)
        self.core.set_started(len(self.devices))

    def read_mode(self) -> None:
        """Take the eager mode from the environment, once: a mode chosen in code comes after it."""
        if not self._mode_is_read:
            mode = ("fused", "strict", "debug").index(flags.get("TORCHTPU_EAGER_MODE"))
            self._mode_is_read = True
            self.core.set_eager_mode(mode)

    # ---- waiting and memory ----

    def synchronize(self, device: int) -> None:
        from torchtpu.runtime import in_flight

        if not self.devices:
            return
        self.start(device, self.core.in_bad_fork())
        self.core.flush_all(device, "synchronize", True)
        in_flight.wait(device)

    def query_device(self, device: int) -> bool:
        from torchtpu.runtime import in_flight

        if self.devices:
            self.start(device, self.core.in_bad_fork())
            self.core.flush_all(device, "query", True)
        return in_flight.is_idle(device)

    def memory_info(self, device: int) -> tuple[int, int]:
        from torchtpu.runtime import memory

        self.start(device, self.core.in_bad_fork())
        return memory.info(self.devices[device])

    def empty_cache(self) -> None:
        """XLA frees memory as soon as nothing refers to it; there is nothing to give back beyond that."""

    def record_event(self, event: int, device: int, timed: bool) -> int:
        from torchtpu.runtime import in_flight

        self.start(device, self.core.in_bad_fork())
        self.core.flush_all(device, "event", True)
        return in_flight.record_event(event, device, timed)

    def destroy_event(self, event: int) -> None:
        from torchtpu.runtime import in_flight

        in_flight.destroy_event(event)

    def query_event(self, event: int) -> bool:
        from torchtpu.runtime import in_flight

        return in_flight.query_event(event)

    def synchronize_event(self, event: int) -> None:
        from torchtpu.runtime import in_flight

        in_flight.synchronize_event(event)

    def elapsed_ms(self, first: int, second: int) -> float:
        from torchtpu.runtime import in_flight

        return in_flight.elapsed_ms(first, second)

    # ---- lowering ----

    def describe(self, name: str) -> Any:
        from torchtpu.graph.roles import describe

        return describe(name)

    def resolve(self, name: str, arguments: list[Any], buffers: list[Any]) -> Any:
        import jax

        from torchtpu.graph.resolve import resolve

        with self._resolving, jax.enable_x64(True):  # FakeTensorMode is not made for several threads
            return resolve(name, arguments, buffers)

    def compile(self, sent: dict[str, Any]) -> Any:
        from torchtpu.graph.program import RecordedProgram
        from torchtpu.runtime import executables

        program = RecordedProgram.parse(sent)
        return executables.build(program, self.devices[program.device])

    def launch(self, executable: Any, arguments: list[Any], device: int) -> list[Any]:
        from torchtpu.runtime import executables

        return executables.launch(executable, arguments, self.devices[device])

    def launched(self, outputs: list[Any], device: int) -> None:
        from torchtpu.runtime import in_flight

        in_flight.last_outputs[device] = outputs[:-1] if self.core.eager_mode() == 2 else []
        in_flight.note_launch(device, outputs[-1])

    def defer_interrupt(self) -> Any:
        from torchtpu.runtime import interrupts

        return interrupts.defer()

    def resume_interrupt(self, handler: Any) -> bool:
        from torchtpu.runtime import interrupts

        return interrupts.resume(handler)

    def keep_abstract(self, sent: dict[str, Any]) -> None:
        from torchtpu.graph.program import RecordedProgram
        from torchtpu.runtime import executables

        executables.last_abstract = RecordedProgram.parse(sent)

    def run_dynamic(self, lowered: Any, arrays: list[Any], numbers: list[Any], device: int) -> list[Any]:
        from torchtpu.runtime import dynamic

        start_s = time.perf_counter()
        results = dynamic.run(lowered, arrays, numbers, self.devices[device])
        self._watch.end_wait(start_s)
        return results

    def check(self, op: str, device: int) -> None:
        from torchtpu.runtime import debug

        debug.check(op, device)

    # ---- moving data ----

    def upload(self, view: memoryview, dtype: Any, shape: tuple[int, ...], device: int, owner: Any) -> Any:
        from torchtpu import dtypes
        from torchtpu.runtime import in_flight, transfers

        array = transfers.upload(view, dtypes.to_numpy(dtype), shape, self.devices[device], owner)
        if owner is not None:
            in_flight.note_launch(device, array.token)
        return array

    def download(self, array: Any, view: memoryview) -> None:
        from torchtpu.runtime import transfers

        start_s = time.perf_counter()
        transfers.download(array, view)
        self._watch.end_wait(start_s)

    def to_device(self, array: Any, device: int) -> Any:
        from torchtpu.runtime import transfers

        self.start(device, self.core.in_bad_fork())
        return transfers.to_device(array, self.devices[device])

    # ---- telling ----

    def note_sync(self, what: str) -> None:
        self._watch.note_read(user_line(), what)

    def note_fallback(self, op: str) -> None:
        policy = flags.get("TORCHTPU_FALLBACK")
        if policy == "error":
            raise errors.MissingRuleError(op=op)
        if policy == "warn" and op not in counters.fallbacks_by_op():
            warnings.warn(
                f"{op} has no rule and no decomposition: it runs on the CPU, and everything recorded before it had to be run first."
                " Said once an operator; torchtpu.inspect.counters() counts them.",
                FallbackWarning, stacklevel=stack_level())
        self._watch.begin_fallback(op, user_line())

    def end_fallback(self) -> None:
        self._watch.end_fallback()

    def raise_error(self, name: str, fields: str) -> None:
        pairs = (field.partition("=") for field in fields.split("\x1f"))
        raise getattr(errors, name)(**{key: value for key, _, value in pairs})
